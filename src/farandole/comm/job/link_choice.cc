#include "farandole/comm/job/link_choice.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <optional>

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
constexpr double clearly_faster = 0.7;  // small differences change from run to run
constexpr int comparisons = 3;          // a disturbed one must not decide for the whole job
constexpr double trial_us = 25'000;     // for one kind; when it is over, no other window is tried

const char* text_of(LinkKind kind) {
  return kind == LinkKind::tcp ? "TCP" : "MPI";
}

// Duration of the fastest call, of the slowest rank. The fastest one is disturbed least by other programs,
// and they must not decide.
template <class Call>
double time_us(MpiCommunicator& mpi, int calls, Call call) {
  double best = 0;
  for (int i = 0; i <= calls; ++i) {
    const std::int64_t start = now_ns();
    call();
    const double us = static_cast<double>(now_ns() - start) * 1e-3;
    if (i == 1 || (i > 1 && us < best)) best = us;
  }
  mpi.allreduce("trial", &best, 1, DType::float64, ReduceOp::max);
  return best;
}

double time_slice_us(LeaderGroup& group, MpiCommunicator& mpi, Patience patience, std::size_t bytes,
                     int calls) {
  std::vector<float> values(bytes / sizeof(float));
  Slice slice;
  slice.data = reinterpret_cast<std::byte*>(values.data());
  return time_us(mpi, calls, [&] {
    if (bytes <= small_bytes)
      group.start_small(0, false, slice.data, values.size(), slice.dtype, slice.op);
    else
      group.start(0, slice,
                  allreduce_stream(mpi.rank, mpi.size, values.size(), group.cut(slice.wire_dtype())));
    drive(group, &LeaderGroup::busy, LinkWait(patience));
  });
}

double time_allreduce_us(Communicator& communicator, MpiCommunicator& mpi, std::size_t bytes, int calls) {
  const auto memory = communicator.allocate(bytes);
  return time_us(mpi, calls, [&] {
    communicator.allreduce("trial", memory.get(), bytes / sizeof(float), DType::float32, ReduceOp::sum);
  });
}

struct Times {
  double small_us = 0, large_us = 0;
  std::size_t window = 1;
};

Times time_links(LeaderGroup& group, MpiCommunicator& mpi, Patience patience) {
  Times times;
  times.small_us = time_slice_us(group, mpi, patience, small_bytes, 50);
  double spent_us = 0;
  for (const std::size_t window : windows) {
    group.set_window(window);
    const double us = time_slice_us(group, mpi, patience, large_bytes, 8);
    spent_us += 9 * us;
    // A larger window must be clearly better, because it needs more memory, and because messages in flight
    // leave the caches.
    if (times.large_us == 0 || us < clearly_faster * times.large_us) {
      times.large_us = us;
      times.window = window;
    }
    if (spent_us > trial_us) break;
  }
  return times;
}

}  // namespace

std::vector<std::unique_ptr<Link>> make_links(LinkKind kind, MPI_Comm leaders, MpiCommunicator& group) {
  return kind == LinkKind::tcp ? connect_sockets(group, ranks_in_world(leaders)) : make_mpi_links(leaders);
}

LinkChoice choose_links(const std::vector<LinkKind>& kinds, MPI_Comm leaders, MpiCommunicator& group,
                        Patience patience, std::string& problem) {
  std::optional<LinkChoice> best;
  double best_product = 0;
  std::string reason;
  for (const LinkKind kind : kinds) {
    try {
      LeaderGroup timed(group.rank, group.size, make_links(kind, leaders, group));
      const auto times = time_links(timed, group, patience);
      reason += fmt::format("{}{}: {:.0f} µs for 64 B, {:.0f} µs for 1 MiB", reason.empty() ? "" : "; ",
                            text_of(kind), times.small_us, times.large_us);
      // Both sizes count equally. TCP comes first and stays unless MPI is clearly faster.
      const double product = times.small_us * times.large_us;
      if (best && product > clearly_faster * best_product) continue;
      best_product = product;
      best = LinkChoice{.kind = kind, .window = times.window};
    } catch (const Error& error) {
      if (kinds.size() == 1) throw;
      problem = error.what();
    }
  }
  if (!best) throw Error(problem);
  best->reason = fmt::format("{} between nodes, {} KiB at once ({})", text_of(best->kind),
                             LeaderGroup::piece_bytes(group.size) / 1024 * best->window, reason);
  return *best;
}

void compare_with_mpi(Communicator& links, MpiCommunicator& mpi, LinkChoice& choice) {
  const auto time = [&](Communicator& communicator, Times& best) {
    best.small_us = std::min(best.small_us, time_allreduce_us(communicator, mpi, small_bytes, 20));
    best.large_us = std::min(best.large_us, time_allreduce_us(communicator, mpi, large_bytes, 4));
  };
  constexpr double never = std::numeric_limits<double>::max();
  Times ours{never, never}, theirs{never, never};
  choice.compared = choice.collectives_of_mpi = true;
  for (int i = 0; i < comparisons && choice.collectives_of_mpi; ++i) {
    time(links, ours);
    time(mpi, theirs);
    choice.collectives_of_mpi =
        theirs.small_us < clearly_faster * ours.small_us && theirs.large_us < clearly_faster * ours.large_us;
  }
  const auto describe = [](const Times& times) {
    return fmt::format("{:.0f} µs for 64 B, {:.0f} µs for 1 MiB", times.small_us, times.large_us);
  };
  choice.reason =
      choice.collectives_of_mpi
          ? fmt::format("MPI's collectives between nodes at all sizes (allreduce: {}; otherwise: {}; {})",
                        describe(theirs), describe(ours), choice.reason)
          : fmt::format("{} (allreduce: {}; MPI_Allreduce: {})", choice.reason, describe(ours),
                        describe(theirs));
}

}  // namespace farandole
