// farandole record: becomes a command, in whose processes PyTorch programs are recorded.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/launch/supervisor/rank_environment.h"

namespace {

namespace po = boost::program_options;

constexpr const char* usage =
    "Usage: farandole record [--run-dir RUN] [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Starts COMMAND as it is: a Python script with PyTorch, or the launcher of one. Each of its processes that joins a\n"
    "process group or trains is recorded. This changes neither exit codes nor signals, and no process waits for it. It\n"
    "sets FARANDOLE_TRACE=1. With FARANDOLE=off in the environment, nothing is recorded.\n"
    "\n"
    "Examples:\n"
    "  $ farandole record -- torchrun --nproc-per-node 4 train.py\n"
    "  $ srun farandole record -- python3 train.py\n"
    "  $ farandole record --run-dir RUN -- python3 train.py\n";

int run(int argc, char** argv) {
  std::string run_dir;
  farandole::OptionParser parser;
  parser.usage = usage;
  parser.visible.add_options()(
      "run-dir", po::value(&run_dir),
      "record in RUN. The default is farandole-runs/JOBID.STEP in a Slurm job, and else farandole-runs/DATE-TIME-HOST-PID, "
      "a folder for each job that the command starts");
  const int own = parser.own_arguments(argc, argv);
  if (!parser.parse(own, argv)) return 0;
  const int first = own < argc && std::string_view(argv[own]) == "--" ? own + 1 : own;
  if (first >= argc)
    throw farandole::UserError(
        "there is no command to record; give one, as in farandole record -- python3 train.py");
  farandole::require_python("this command");
  auto changes = farandole::python_environment({.guest = true}, &std::getenv);
  if (!run_dir.empty()) changes.emplace_back("FARANDOLE_RUN_DIR", std::filesystem::absolute(run_dir));
  for (const auto& [name, value] : changes)
    if (value) ::setenv(name.c_str(), value->c_str(), 1);
  ::execvp(argv[first], argv + first);
  throw farandole::UserError(fmt::format("cannot run {}: {}", argv[first], std::strerror(errno)));
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole record", [&] { return run(argc, argv); });
}
