// farandole doctor [RUN]: reports why a run hung, crashed or refused to start. Without RUN
// it checks the installation.
#include <cstdio>
#include <iostream>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/doctor/diagnosis.h"
#include "farandole/doctor/installation.h"

namespace {

using farandole::ExitCode;

struct Options {
  std::string run;
  std::string format = "text";
};

// Returns false after --help.
bool parse(int argc, char** argv, Options& options) {
  namespace po = boost::program_options;
  farandole::OptionParser parser;
  parser.usage =
      "Usage: farandole doctor [RUN] [--format text|json]\n\n"
      "Reports why a run hung, crashed, was killed or refused to start. RUN is its run directory or a copy\n"
      "of it. Without RUN, it checks this installation and exits with code 1 if a check fails.\n\n"
      "Examples:\n"
      "  $ farandole doctor\n"
      "  $ farandole doctor RUN\n";
  parser.visible.add_options()("format", po::value(&options.format), "text or json")(
      "run", po::value(&options.run), "run directory (positional argument)");
  parser.positional.add("run", 1);
  if (!parser.parse(argc, argv)) return false;
  farandole::check_format(options.format);
  return true;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 0;
  const bool json = options.format == "json";
  auto code = ExitCode::done;
  if (options.run.empty()) {
    const auto checks = farandole::check_installation();
    std::cout << (json ? checks_json(checks) : checks_text(checks));
    if (has_failure(checks)) code = ExitCode::failure;
  } else {
    const auto evidence = farandole::read_run_evidence(options.run);
    const auto diagnosis = farandole::diagnose(evidence);
    std::cout << (json ? diagnosis_json(evidence, diagnosis) : diagnosis_text(evidence, diagnosis));
  }
  if (!std::cout.flush()) throw farandole::Error("stdout cannot be written");
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole doctor", [&] { return run(argc, argv); });
}
