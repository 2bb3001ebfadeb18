// Runs the command lines of farandole fit that are its arguments, on the ranks of one job, because ranks take
// longer to start than to fit. Ends with the exit code of the first fit that fails.
#include <farandole/train/session.h>
#include <sstream>
#include <string>
#include <vector>

#include "train/torch_program.h"

#include "farandole/estimator/fit.h"

int many_fits(int argc, char** argv) {
  return farandole::run_session("many_fits", argc, argv, [&](farandole::Session& session) {
    auto code = farandole::ExitCode::done;
    for (int i = 1; i < argc && code == farandole::ExitCode::done; ++i) {
      std::istringstream line(argv[i]);
      std::vector<std::string> words{"fit"};
      for (std::string word; line >> word;) words.push_back(word);
      std::vector<const char*> pointers;
      for (const auto& word : words) pointers.push_back(word.c_str());
      const auto fit = farandole::parse_fit(static_cast<int>(pointers.size()), pointers.data());
      if (!fit) return 0;
      std::string run;
      code = farandole::fit_on_rank(
          session, fit->options, fit->table, [] { return false; }, run);
    }
    return static_cast<int>(code);
  });
}
