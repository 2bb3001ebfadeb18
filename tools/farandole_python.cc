// farandole python: becomes a Python that finds Farandole under the names that scripts of Horovod import.
#include <algorithm>
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
#include "farandole/launch/process/machine.h"
#include "farandole/launch/supervisor/rank_environment.h"

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr const char* usage =
    "Usage: farandole python [--run-dir RUN] [--] [SCRIPT | -m MODULE | PYTHON-OPTION...] [ARGUMENT...]\n"
    "\n"
    "Runs Python so that the script's import of horovod or sparkdl, and TorchDistributor of pyspark, give those of\n"
    "Farandole. The script itself is one process; what it passes to HorovodRunner, TorchDistributor, horovod.run or\n"
    "SparkBackend runs on ranks that `farandole run` starts. A script without such a runner is started on its ranks by\n"
    "farandole run --horovod. The interpreter is $FARANDOLE_PYTHON, or else python3 on PATH.\n"
    "\n"
    "Examples:\n"
    "  $ farandole python train.py\n"
    "  $ farandole python --run-dir RUNS -m train --epochs 10\n";

// Python's options have one dash; ours, but for -h, have two.
bool is_of_python(std::string_view word) {
  return word.starts_with('-') && !word.starts_with("--") && word != "-h";
}

fs::path interpreter() {
  const char* const wish = std::getenv("FARANDOLE_PYTHON");
  const bool chosen = wish != nullptr && *wish != '\0';
  const std::string name = chosen ? wish : "python3";
  const char* const path = std::getenv("PATH");
  if (const auto found = farandole::find_program(name, path == nullptr ? "" : path)) return *found;
  throw farandole::UserError(
      chosen ? fmt::format(
                   "FARANDOLE_PYTHON is '{}', which is no executable program; set it to a Python interpreter",
                   name)
             : "there is no python3 on PATH; install it, or set FARANDOLE_PYTHON to a Python interpreter");
}

int run(int argc, char** argv) {
  std::string run_dir;
  farandole::OptionParser parser;
  parser.usage = usage;
  parser.visible.add_options()(
      "run-dir", po::value(&run_dir),
      "folder for the run directories of the jobs that the script starts. The default is "
      "farandole-runs in the current folder");
  const auto end = std::find_if(argv + 1, argv + argc, is_of_python) - argv;
  const int own = parser.own_arguments(static_cast<int>(end), argv);
  if (!parser.parse(own, argv)) return 0;
  std::vector<char*> words(argv + own, argv + argc);
  if (!words.empty() && std::string_view(words.front()) == "--") words.erase(words.begin());
  std::error_code ignored;
  if (!words.empty() && *words.front() != '-' && !fs::exists(words.front(), ignored))
    throw farandole::UserError(
        fmt::format("there is no script '{}'; give the path of a Python file", words.front()));
  farandole::require_python("this command");
  auto python = interpreter().string();

  auto changes = farandole::python_environment({.horovod = true}, &std::getenv);
  changes.emplace_back("FARANDOLE_PROGRAM", farandole::program_folder() / "farandole");
  if (!run_dir.empty()) changes.emplace_back("FARANDOLE_RUNS", fs::absolute(run_dir));
  for (const auto& [name, value] : changes)
    if (value) ::setenv(name.c_str(), value->c_str(), 1);
  words.insert(words.begin(), python.data());
  words.push_back(nullptr);
  ::execv(python.c_str(), words.data());
  throw farandole::UserError(fmt::format("cannot run {}: {}", python, std::strerror(errno)));
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole python", [&] { return run(argc, argv); });
}
