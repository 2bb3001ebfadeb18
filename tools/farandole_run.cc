// farandole run: starts a program on several ranks, with srun inside a Slurm job and with mpirun otherwise.
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/launch/launcher.h"

namespace {

namespace po = boost::program_options;

constexpr const char* usage =
    "Usage: farandole run [-n N] [--local] [--prefix] [--log-dir DIR] [--run-dir RUN [--trace-mpi] [--trace-torch]] "
    "[--horovod] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Starts PROGRAM on N ranks, with srun inside a Slurm job and with mpirun otherwise. The exit code is\n"
    "the exit code of the rank that failed first, or 128 + N if signal N killed that rank. A message names\n"
    "the rank. If OMP_NUM_THREADS is not set, it is set to the number of cores per rank.\n"
    "\n"
    "Examples:\n"
    "  $ farandole run -n 4 -- ./program\n"
    "  $ farandole run -n 4 --run-dir RUN --trace-mpi -- ./program\n"
    "  $ farandole run -n 4 --run-dir RUN --trace-torch -- python3 train.py\n";

farandole::Starter starter_of(const std::string& name) {
  if (name == "srun") return farandole::Starter::srun;
  if (name == "mpirun") return farandole::Starter::mpirun;
  if (name == "own") return farandole::Starter::own;
  throw farandole::UserError("--starter cannot be '" + name + "'; it is own, srun or mpirun");
}

int run(int argc, const char* const* argv) {
  if (farandole::is_supervisor(argc, argv)) return farandole::run_supervisor(argc, argv);
  farandole::LaunchRequest request;
  std::string log_folder, run_dir;
  farandole::OptionParser parser;
  parser.usage = usage;
  parser.visible.add_options()(
      "ranks,n", po::value<std::string>()->notifier([&](const std::string& ranks) {
        request.ranks = farandole::parse_ranks(ranks);
      }),
      "number of ranks, or all: all cores of this machine; in a Slurm job, all its tasks or else all its "
      "CPUs. The default is the number of tasks of the Slurm job, and 1 without Slurm")(
      "nodes,N", po::value<int>()->notifier([&](int nodes) { request.nodes = nodes; }),
      "number of nodes of the Slurm job, of which all are used; another number is refused")(
      "local", po::bool_switch(&request.local), "start all ranks on this machine, also inside a Slurm job")(
      "prefix", po::bool_switch(&request.prefix),
      "print the rank and the time before each line: [3 12:34:56.789] text")(
      "log-dir", po::value(&log_folder), "also write each rank's output, with times, to DIR/rank-0003.log")(
      "run-dir", po::value(&run_dir),
      "write the records of the launcher and of farandole::Session to RUN, and each rank's output to "
      "RUN/logs")(
      "max-restarts", po::value(&request.max_restarts)->default_value(0),
      "start the job again up to this many times if a rank fails. It is not started again after a user's error, or if it "
      "fails three times in a row with the same exit code at the same step (or at its start) without a new checkpoint")(
      "min-ranks", po::value<int>()->notifier([&](int fewest) { request.min_ranks = fewest; }),
      "in a Slurm job of several hosts (sbatch --no-kill): if hosts are lost, --max-restarts may start the job again on the "
      "remaining ones with fewer ranks, but not with fewer than this")(
      "requeue", po::value<int>()->notifier([&](int most) { request.requeue = most; }),
      "in a Slurm batch job: if the program saves a checkpoint and ends with exit code 75, requeue the job, unless it was "
      "cancelled or Slurm has already started it again this many times")(
      "report", po::bool_switch(&request.report),
      "write each rank's output to RUN/logs, and at the end, also after a failure, the report of the run to RUN/report.txt "
      "and RUN/report.html")(
      "starter", po::value<std::string>()->notifier([&](const std::string& name) {
        request.starter = starter_of(name);
      }),
      "own (farandole run starts the ranks itself, on this machine), srun or mpirun. The default is srun in a Slurm job if "
      "srun offers PMIx, otherwise mpirun if it is in PATH, and own without it")(
      "oversubscribe", po::bool_switch(&request.oversubscribe),
      "allow more ranks than cores, which then share cores")(
      "trace-mpi", po::bool_switch(&request.trace_mpi),
      "also record the MPI calls that the program makes from C or C++, if it is linked dynamically with Open MPI")(
      "trace-torch", po::bool_switch(&request.trace_torch),
      "record the phases, steps and collectives of a program that uses PyTorch in Python")(
      "torch-backend", po::value<std::string>()->notifier([&](const std::string& backend) {
        farandole::check_torch_backend(backend);
        request.torch_backend = true;
      }),
      "farandole: torch.distributed uses Farandole's collectives, whatever backend the program names")(
      "horovod", po::bool_switch(&request.horovod),
      "a Python script that imports horovod.torch gets Farandole's, and the same for Spark's runners");
  parser.synonyms = {{"np", "ranks"}};
  const int own = parser.own_arguments(argc, argv);
  if (!parser.parse(own, argv)) return 0;
  if (request.max_restarts < 0) throw farandole::UserError("--max-restarts cannot be negative");
  if (request.min_ranks.value_or(1) < 1) throw farandole::UserError("--min-ranks must be 1 or more");
  if (request.requeue.value_or(0) < 0) throw farandole::UserError("--requeue cannot be negative");
  const int program = own < argc && std::string_view(argv[own]) == "--" ? own + 1 : own;
  request.run_dir = run_dir;
  if (log_folder.empty() && !run_dir.empty()) log_folder = request.run_dir / "logs";
  request.log_folder = log_folder;
  request.program.assign(argv + program, argv + argc);
  request.folder_of_caller = farandole::folder_of_caller([](const char* name) { return std::getenv(name); });
  return farandole::launch(request);
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole run", [&] { return run(argc, argv); });
}
