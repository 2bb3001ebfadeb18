// farandole run: starts a program on several ranks, with srun inside a Slurm job, with mpirun elsewhere.
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/launch/launcher.h"

namespace {

namespace po = boost::program_options;

constexpr const char* usage =
    "farandole run [-n N] [--prefix] [--log-dir DIR] [--run-dir RUN [--trace-mpi]] [--] PROGRAM "
    "[ARGUMENT...]\n"
    "\n"
    "Starts PROGRAM on N ranks: with srun inside a Slurm job, with mpirun elsewhere. Ends with the exit "
    "code\n"
    "of the rank that failed first (128 + N where signal N killed it) and says which one that was.\n"
    "The ranks get OMP_NUM_THREADS = cores a rank, unless it is set.\n";

// Our options end at "--" or at the first word that belongs to none of them: the rest is the program's.
int own_arguments(int argc, const char* const* argv) {
  int next = 1;
  for (; next < argc && argv[next][0] == '-' && std::string_view(argv[next]) != "--"; ++next) {
    const std::string_view word = argv[next];
    if (word == "-n" || word == "--ranks" || word == "--log-dir" || word == "--run-dir") ++next;  // its value
  }
  return std::min(next, argc);
}

int run(int argc, const char* const* argv) {
  if (farandole::is_supervisor(argc, argv)) return farandole::run_supervisor(argc, argv);
  farandole::LaunchRequest request;
  std::string log_folder, run_dir;
  farandole::OptionParser parser;
  parser.usage = usage;
  parser.visible.add_options()(
      "ranks,n", po::value<int>()->notifier([&](int ranks) { request.ranks = ranks; }),
      "ranks; -1: all cores of this machine, in a Slurm job all its tasks, or else all its CPUs. "
      "Without it: in a Slurm job its number of tasks, elsewhere 1")(
      "prefix", po::bool_switch(&request.prefix),
      "put rank and time before each line: [3 12:34:56.789] text")(
      "log-dir", po::value(&log_folder),
      "write each rank's output, with times, to DIR/rank-0003.log as well")(
      "run-dir", po::value(&run_dir),
      "what the launcher and a program with a farandole::Session record goes to RUN, output to RUN/logs")(
      "trace-mpi", po::bool_switch(&request.trace_mpi),
      "record the program's own MPI calls, too, of any program, into the timeline of the run directory");
  const int own = own_arguments(argc, argv);
  if (!parser.parse(own, argv)) return 0;
  const int program = own < argc && std::string_view(argv[own]) == "--" ? own + 1 : own;
  request.run_dir = run_dir;
  if (log_folder.empty() && !run_dir.empty()) log_folder = request.run_dir / "logs";
  request.log_folder = log_folder;
  request.program.assign(argv + program, argv + argc);
  return farandole::launch(request);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const farandole::Error& error) {
    fmt::print(stderr, "farandole run: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "farandole run: {}\n", error.what());
    return static_cast<int>(farandole::ExitCode::failure);
  }
}
