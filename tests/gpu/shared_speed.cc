// How fast two ranks that share a GPU reduce 256 MB, against the bandwidth of its memory in the same run. The
// ranks read and write 4 bytes for each byte of a rank; a copy on the device reads and writes 2. Prints one
// line of JSON.
#include <array>
#include <fmt/format.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/fork_world.h"
#include "gpu/speed.h"
#include "hang.h"

#include "farandole/base/error.h"
#include "farandole/base/process/program.h"
#include "farandole/comm/ipc/ipc_communicator.h"

namespace farandole {
namespace {

constexpr int ranks = 2;

void run_rank(ForkWorld& world, int rank, bool small) {
  ForkWorld::Exchange bootstrap(world, rank);
  std::string why_not;
  const auto runtime = GpuRuntime::load(why_not);
  if (runtime == nullptr) throw UserError(why_not);
  IpcCommunicator comm(bootstrap, runtime, 0);
  const std::size_t bytes = small ? 1 << 20 : 256 << 20;
  const auto data = comm.allocate(bytes);
  const auto other = rank == 0 ? runtime->allocate(bytes) : Buffer();
  const GpuStream stream(runtime);
  const auto together = [&] {
    char token = 0, tokens[ranks];
    bootstrap.all_gather("start", &token, tokens, std::array<std::size_t, ranks>{1, 1});
  };
  std::vector<double> reduced, copied;
  for (int i = 0; i < (small ? 3 : 25); ++i) {
    together();
    reduced.push_back(seconds_of(runtime, stream.handle(), [&] {
      comm.allreduce("speed", data.get(), bytes / 4, DType::float32, ReduceOp::sum, 1, stream.handle());
    }));
    together();
    if (rank == 0)
      copied.push_back(seconds_of(runtime, stream.handle(),
                                  [&] { runtime->copy(other.get(), data.get(), bytes, stream.handle()); }));
  }
  if (rank == 0)
    fmt::print("{{\"bytes\": {}, \"allreduce_us\": {:.1f}, \"copy_us\": {:.1f}, \"fraction\": {:.3f}}}\n",
               bytes, median(reduced) * 1e6, median(copied) * 1e6, 2 * median(copied) / median(reduced));
  std::fflush(stdout);
  together();
}

int run(int argc, char** argv) {
  const bool small = argc > 1 && std::string_view(argv[1]) == "--small";
  ForkWorld world(ranks);
  std::array<pid_t, ranks> pids{};
  for (int rank = 0; rank < ranks; ++rank) {
    pids[static_cast<std::size_t>(rank)] = ::fork();
    if (pids[static_cast<std::size_t>(rank)] != 0) continue;
    end_if_it_hangs(120);
    ::_exit(run_main("shared_speed", [&] { return run_rank(world, rank, small), 0; }));
  }
  bool failed = false;
  for (const auto pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed = failed || status != 0;
  }
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  return farandole::run_main("shared_speed", [&] { return farandole::run(argc, argv); });
}
