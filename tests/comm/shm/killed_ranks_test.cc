// Ranks are killed in the middle of a collective. The other ranks must report it, and nothing
// may be left behind.
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/fork_world.h"
#include "hang.h"
#include "lane.h"

#include "farandole/comm/shm/shared_memory_communicator.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm"))
    // Open MPI's segments contain the host's name.
    if (const auto name = entry.path().filename().string();
        name.find("farandole") != std::string::npos && !name.starts_with("vader_segment"))
      names.insert(entry.path());
  return names;
}

// As a profiler that takes samples by wall time.
void interrupt_every_5_ms() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
  struct sigevent event {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_t timer{};
  ::timer_create(CLOCK_MONOTONIC, &event, &timer);
  const itimerspec often{{0, 5'000'000}, {0, 5'000'000}};
  ::timer_settime(timer, 0, &often, nullptr);
}

// Reduces until it is killed or learns that another rank was killed. The exit code says which. After `moment`
// calls, rank 0 writes a byte to `reached`.
int reduce_forever(ForkWorld& world, int rank, unsigned seed, unsigned moment, int reached) {
  end_if_it_hangs(120);
  try {
    ForkWorld::Exchange exchange(world, rank);
    SharedMemoryCommunicator comm(exchange, {.arena_bytes = std::size_t{64} << 20});
    std::mt19937 random(seed);  // equal on all ranks
    if (seed % 2 == 1) interrupt_every_5_ms();
    auto buffer = comm.allocate(1 << 20);
    std::vector<std::byte> elsewhere(1 << 20);
    const auto blocks = comm.map(std::vector<std::size_t>{1 << 20}, Views::yes);
    for (unsigned call = 0;; ++call) {
      const std::size_t bytes = (std::size_t{1} << random() % 18) * 8;
      auto* const data = random() % 2 == 0 ? buffer.get() : elsewhere.data();
      comm.allreduce("until killed", data, bytes / 8, DType::int64, ReduceOp::max);
      if (call % 3 == 0) comm.meet("until killed");
      blocks->blocks().front()[call % (1 << 20)] = std::byte{1};
      if (rank == 0 && call == moment && ::write(reached, "", 1) != 1) return 1;
    }
  } catch (const Error& error) {
    const bool told = error.exit_code() == ExitCode::peer_lost &&
                      std::string_view(error.what()).find("SIGKILL") != std::string_view::npos;
    if (!told) std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return told ? static_cast<int>(ExitCode::peer_lost) : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

TEST(KilledRanks, AreNamedOnAllSurvivorsAndLeaveNothingBehind) {
  const auto before = shared_memory_files();
  std::mt19937 random(seed(20261121));
  for (int round = 0; round < rounds(12, 200); ++round) {
    const int size = 2 + round % 3;
    const auto victim = static_cast<std::size_t>(random() % static_cast<unsigned>(size));
    const auto moment = static_cast<unsigned>(random() % 300);  // in calls
    ForkWorld world(size);
    int reached[2];
    ASSERT_EQ(::pipe(reached), 0);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) ::_exit(reduce_forever(world, rank, static_cast<unsigned>(round), moment, reached[1]));
      pids.push_back(pid);
    }
    ::close(reached[1]);
    char byte = 0;
    ASSERT_EQ(::read(reached[0], &byte, 1), 1) << "all ranks ended before the kill, in round " << round;
    ::close(reached[0]);
    ::kill(pids[victim], SIGKILL);
    for (std::size_t r = 0; r < pids.size(); ++r) {
      if (r == victim) continue;
      int status = 0;
      ASSERT_EQ(::waitpid(pids[r], &status, 0), pids[r]);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::peer_lost))
          << "round " << round << " rank " << r << " status " << status;
    }
    ::waitpid(pids[victim], nullptr, 0);
  }
  EXPECT_EQ(shared_memory_files(), before);
}

}  // namespace
}  // namespace farandole
