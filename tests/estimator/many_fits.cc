// Runs the command lines of farandole fit that are its arguments, on the ranks of one job, because ranks take
// longer to start than to fit. Ends with the exit code of the first fit that fails. A command line that
// begins with the word refused must end with an error that all ranks know: its code and text are printed.
#include <farandole/train/session.h>
#include <fmt/format.h>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "train/torch_program.h"

#include "farandole/estimator/fit.h"
#include "farandole/job/job_errors.h"
#include "farandole/train/session_internals.h"

namespace {

using farandole::ExitCode;

ExitCode fit(farandole::Session& session, const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const auto& word : words) pointers.push_back(word.c_str());
  const auto fit = farandole::parse_fit(static_cast<int>(pointers.size()), pointers.data());
  if (!fit) return ExitCode::done;
  std::string run;
  return farandole::fit_on_rank(
      session, fit->options, fit->table, [] { return false; }, run);
}

ExitCode refused(farandole::Session& session, const std::function<ExitCode()>& fit) {
  try {
    fit();
  } catch (const std::exception&) {
    const auto error = farandole::describe_error(std::current_exception(), &session.internals());
    if (error.first_rank < 0) throw;
    if (session.rank() == 0) fmt::print(stderr, "{} {}\n", static_cast<int>(error.code), error.text);
    return ExitCode::done;
  }
  throw std::logic_error("a fit was not refused");
}

}  // namespace

int many_fits(int argc, char** argv) {
  return farandole::run_session("many_fits", argc, argv, [&](farandole::Session& session) {
    auto code = ExitCode::done;
    for (int i = 1; i < argc && code == ExitCode::done; ++i) {
      std::istringstream line(argv[i]);
      std::vector<std::string> words;
      for (std::string word; line >> word;) words.push_back(word);
      const bool is_refused = words.front() == "refused";
      if (is_refused) words.erase(words.begin());
      words.insert(words.begin(), "fit");
      code = is_refused ? refused(session, [&] { return fit(session, words); }) : fit(session, words);
    }
    return static_cast<int>(code);
  });
}
