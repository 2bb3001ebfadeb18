#include "farandole/comm/link_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/mpi/mpi_link.h"
#include "farandole/comm/net/link_wait.h"
#include "farandole/comm/net/socket_link.h"

namespace farandole {
namespace {

constexpr std::array<std::size_t, 4> windows = {1, 2, 4, 16};
constexpr std::size_t small_bytes = 64;
constexpr std::size_t large_bytes = std::size_t{1} << 20;
constexpr double trial_us = 25'000;  // for one kind; when it is over, no other window is tried

const char* text_of(LinkKind kind) {
  return kind == LinkKind::tcp ? "TCP" : "MPI";
}

// A slice without other ranks of the node.
class LoneSlice : public Slice {
 public:
  explicit LoneSlice(std::vector<float>& values) {
    data = reinterpret_cast<std::byte*>(values.data());
    count = values.size();
  }
  void gather(std::size_t, std::size_t) override {}
  void finish(std::size_t, std::size_t, bool) override {}
};

class Trial {
 public:
  Trial(LeaderGroup& group, MpiCommunicator& mpi, Patience patience)
      : group_(group), mpi_(mpi), patience_(patience) {}

  // Duration of the fastest reduction, of the slowest rank. The fastest one is disturbed least by other
  // programs, and they must not decide.
  double time_us(std::size_t bytes, int calls) {
    std::vector<float> values(bytes / sizeof(float));
    double best = 0;
    for (int call = 0; call <= calls; ++call) {
      const std::int64_t start = now_ns();
      LoneSlice slice(values);
      if (bytes <= small_bytes)
        group_.start_small(0, false, slice.data, slice.count, slice.dtype, slice.op);
      else
        group_.start(0, slice);
      LinkWait wait(patience_, [] {});
      while (!group_.complete()) {
        if (group_.advance())
          wait.moved();
        else
          wait.idle(group_.active());
      }
      const double us = static_cast<double>(now_ns() - start) * 1e-3;
      if (call == 1 || (call > 1 && us < best)) best = us;
    }
    mpi_.allreduce("trial", &best, 1, DType::float64, ReduceOp::max);
    return best;
  }

 private:
  LeaderGroup& group_;
  MpiCommunicator& mpi_;
  Patience patience_;
};

struct Times {
  double small_us = 0, large_us = 0;
  std::size_t window = 1;
};

Times time_links(LeaderGroup& group, MpiCommunicator& mpi, Patience patience) {
  Trial trial(group, mpi, patience);
  Times times;
  times.small_us = trial.time_us(small_bytes, 50);
  double spent_us = 0;
  for (const std::size_t window : windows) {
    group.set_window(window);
    const double us = trial.time_us(large_bytes, 8);
    spent_us += 9 * us;
    // A larger window must be clearly better, because it needs more memory.
    if (times.large_us == 0 || us < 0.9 * times.large_us) {
      times.large_us = us;
      times.window = window;
    }
    if (spent_us > trial_us) break;
  }
  return times;
}

}  // namespace

std::vector<std::unique_ptr<Link>> make_links(LinkKind kind, MPI_Comm leaders, MpiCommunicator& group) {
  const auto wanted = needed_links(group.rank, group.size);
  return kind == LinkKind::tcp ? connect_sockets(group, wanted, ranks_in_world(leaders))
                               : make_mpi_links(leaders, wanted);
}

LinkChoice choose_links(const std::vector<LinkKind>& kinds, MPI_Comm leaders, MpiCommunicator& group,
                        Patience patience, std::string& problem) {
  std::optional<LinkChoice> best;
  double best_product = 0;
  std::string reason;
  for (const LinkKind kind : kinds) {
    try {
      LeaderGroup trial_group(group.rank, group.size, make_links(kind, leaders, group));
      const auto times = time_links(trial_group, group, patience);
      reason += fmt::format("{}{}: {:.0f} µs for 64 B, {:.0f} µs for 1 MiB", reason.empty() ? "" : "; ",
                            text_of(kind), times.small_us, times.large_us);
      // Both sizes count equally. TCP comes first and stays unless MPI is clearly faster.
      const double product = times.small_us * times.large_us;
      if (best && product > 0.7 * best_product) continue;
      best_product = product;
      best = LinkChoice{kind, times.window, {}};
    } catch (const Error& error) {
      if (kinds.size() == 1) throw;
      problem = error.what();
    }
  }
  if (!best) throw Error(problem);
  best->reason =
      fmt::format("{} between nodes, {} KiB at once ({})", text_of(best->kind), 128 * best->window, reason);
  return *best;
}

}  // namespace farandole
