#include "farandole/comm/job/transport.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/process/cores.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/hierarchical/hierarchical_communicator.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/mpi/mpi_link.h"
#include "farandole/comm/net/link.h"
#include "farandole/comm/net/socket_link.h"
#include "farandole/comm/shm/shared_memory_communicator.h"

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

// Times reductions of a small and of a large message over `kinds`, with several windows. Takes about 0.1 s;
// slow networks try fewer windows. The result is the same on all ranks. Kinds that cannot be used are
// skipped; `problem` then receives the reason.
// Use new links afterwards. While large windows are tried, TCP makes the buffers of its sockets so large that
// later messages leave the caches, which makes reductions of 128 KiB to 2 MiB two to three times as slow.
// Throws: Error on all ranks if no kind can be used.
// Collective: every rank of `leaders` must call this.
LinkChoice choose_links(const std::vector<LinkKind>& kinds, MPI_Comm leaders, MpiCommunicator& group,
                        Patience patience, std::string& problem) {
  std::optional<LinkChoice> best;
  double best_product = 0;
  std::string reason;
  for (const LinkKind kind : kinds) {
    try {
      LeaderGroup timed(group.rank, group.size, make_links(kind, group, ranks_in_world(leaders), leaders));
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

// Times allreduces of `links`, whose ranks spin before they sleep, and of MPI, for at most 0.1 s, and
// adds to `choice` which of the two is faster. Both communicators have the same ranks, and all ranks get
// the same result.
// Collective: every rank of the group must call this.
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

// Creates a communicator of the ranks with `takes_part`, in the order of `place`. It is null
// on the other ranks.
void split(MPI_Comm group, bool takes_part, int place, MpiHandle& result) {
  check_mpi(MPI_Comm_split(group, takes_part ? 0 : MPI_UNDEFINED, place, &result.comm), "MPI_Comm_split");
}

// True if `here` is true on all ranks.
bool everywhere(MPI_Comm group, bool here) {
  int all = here ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, group), "MPI_Allreduce");
  return all != 0;
}

Patience patience(Waiting waiting, const TransportOptions& options) {
  Patience result;
  result.yield = outnumber_cores(options.machine_ranks);
  if (waiting == Waiting::yielding && !result.yield) result.spin = std::chrono::nanoseconds(0);
  return result;
}

// Null if the ranks cannot share memory.
// Collective: every rank of `node` must call this.
std::unique_ptr<SharedMemoryCommunicator> share_memory(MPI_Comm node, const MpiTypes& types, Waiting waiting,
                                                       const TransportOptions& options) {
  MpiCommunicator bootstrap(node, types, waiting, SignatureCheck::off);
  try {
    return std::make_unique<SharedMemoryCommunicator>(
        bootstrap,
        SharedMemoryOptions{.world_ranks = ranks_in_world(node), .patience = patience(waiting, options)});
  } catch (const Error& error) {  // thrown on all ranks
    if (bootstrap.rank == 0 && options.fell_back)
      options.fell_back(std::string("the ranks of a node cannot share memory: ") + error.what());
    return nullptr;
  }
}

// The choice of the job, or a new one if there is none yet. The communicator that carries gradients spins, so
// the links are measured like this, also if this communicator sleeps.
// Collective: every rank of `group` must call this. `leaders` are those of leader group 0; null
// on other ranks.
LinkChoice agree_on_links(MPI_Comm group, MPI_Comm leaders, MpiCommunicator* mpi, Patience patience,
                          const TransportOptions& options, bool known) {
  if (options.transport == Transport::mpi_messages) return {.kind = LinkKind::mpi, .window = 4};
  LinkChoice choice;
  if (known) choice = *options.known_links;  // on rank 0; groups may have chosen differently
  std::string failure, problem;
  if (!known && leaders != MPI_COMM_NULL) try {
      const std::vector<LinkKind> kinds = options.transport == Transport::tcp
                                              ? std::vector{LinkKind::tcp}
                                              : std::vector{LinkKind::tcp, LinkKind::mpi};
      choice = choose_links(kinds, leaders, *mpi, patience, problem);
    } catch (const Error& error) {  // thrown on all leaders
      failure = error.what();
    }
  // Rank 0 leads its node.
  char text[600] = {};
  (failure.empty() ? choice.reason : failure).copy(text, sizeof text - 1);
  std::uint64_t values[5] = {failure.empty() ? 0u : 1u, static_cast<std::uint64_t>(choice.kind),
                             choice.window, choice.compared ? 1u : 0u, choice.collectives_of_mpi ? 1u : 0u};
  check_mpi(MPI_Bcast(values, 5, MPI_UINT64_T, 0, group), "MPI_Bcast");
  check_mpi(MPI_Bcast(text, sizeof text, MPI_CHAR, 0, group), "MPI_Bcast");
  if (values[0] != 0) throw Error(text);
  if (!problem.empty() && mpi->rank == 0 && options.fell_back) options.fell_back(problem);
  return {static_cast<LinkKind>(values[1]), static_cast<std::size_t>(values[2]), values[3] != 0,
          values[4] != 0, text};
}

// Null if the ranks of a node cannot share memory, or if MPI's collectives are faster.
std::unique_ptr<Communicator> make_hierarchical_communicator(MPI_Comm group, const LeaderPlan& plan,
                                                             const MpiTypes& types, Waiting waiting,
                                                             const TransportOptions& options) {
  HierarchicalCommunicator::Parts parts;
  auto all = std::make_unique<MpiCommunicator>(group, types, Waiting::spin, SignatureCheck::off);
  auto& mpi = *all;
  parts.all = std::move(all);
  parts.world_ranks = ranks_in_world(group);
  const auto rank = static_cast<std::size_t>(mpi.rank);
  const int own_node = plan.node[rank], own_local = plan.local[rank];
  MpiHandle node;
  check_mpi(MPI_Comm_split(group, own_node, own_local, &node.comm), "MPI_Comm_split");
  const bool alone = plan.local_size(own_node) == 1;
  if (!alone) parts.node = share_memory(node.comm, types, waiting, options);
  if (!everywhere(group, alone || parts.node != nullptr)) return nullptr;
  auto hierarchy = options.hierarchy;
  hierarchy.patience = patience(waiting, options);
  hierarchy.while_waiting = [&mpi] { mpi.progress(); };
  const bool known = everywhere(group, options.known_links.has_value());
  LinkChoice choice;
  std::string problem;
  for (int k = 0; k < plan.leader_groups; ++k) {
    MpiHandle leaders;
    split(group, plan.server(own_node, k) == own_local, own_node, leaders);
    auto& links = parts.leader_groups.emplace_back();
    std::unique_ptr<MpiCommunicator> of_leaders;
    const bool serves = leaders.comm != MPI_COMM_NULL;
    if (serves)
      of_leaders = std::make_unique<MpiCommunicator>(leaders.comm, types, Waiting::spin, SignatureCheck::off);
    if (k == 0)
      choice = agree_on_links(group, leaders.comm, of_leaders.get(), {.yield = hierarchy.patience.yield},
                              options, known);
    if (!serves) continue;
    try {
      links = std::make_unique<LeaderGroup>(
          of_leaders->rank, of_leaders->size,
          make_links(choice.kind, *of_leaders, ranks_in_world(leaders.comm), leaders.comm));
      links->set_window(choice.window);
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  // Ranks that are not in the same leader group would wait for those that throw.
  if (!everywhere(group, problem.empty()))
    throw Error(problem.empty() ? "ranks of another leader group cannot be connected" : problem);
  if (!known)
    choice.reason +=
        plan.leader_groups == 1
            ? "; messages pass one rank of each node"
            : fmt::format("; messages up to {} KiB pass one rank of each node, larger ones pass {}",
                          hierarchy.latency_bytes / 1024, plan.leader_groups);
  auto made = std::make_unique<HierarchicalCommunicator>(std::move(parts), plan, hierarchy);
  const bool chooses = options.transport == Transport::automatic;
  // MPI spins. A communicator whose ranks sleep at once does not show which way is faster.
  if (chooses && !choice.compared && hierarchy.patience.spin.count() > 0)
    compare_with_mpi(*made, mpi, choice);
  if (options.chose_links) options.chose_links(choice);
  if (chooses && choice.collectives_of_mpi && hierarchy.wire == Wire::exact) return nullptr;
  return made;
}

}  // namespace

std::vector<std::unique_ptr<Link>> make_links(LinkKind kind, Communicator& group,
                                              std::span<const int> world_ranks, MPI_Comm leaders) {
  return kind == LinkKind::tcp ? connect_sockets(group, world_ranks) : make_mpi_links(leaders);
}

Transport parse_transport(std::string_view text, std::string_view name) {
  if (text == "auto") return Transport::automatic;
  if (text == "hierarchical") return Transport::hierarchical;
  if (text == "mpi") return Transport::mpi;
  throw UserError(fmt::format("{} is '{}', but it must be auto, hierarchical or mpi", name, text));
}

Transport requested_transport() {
  const char* const text = std::getenv("FARANDOLE_TRANSPORT");
  return text == nullptr ? Transport::automatic : parse_transport(text, "FARANDOLE_TRANSPORT");
}

std::unique_ptr<Communicator> make_communicator(MPI_Comm group, std::span<const int> node_by_rank,
                                                const MpiTypes& types, Waiting waiting,
                                                const TransportOptions& options) {
  if (size_of(group) == 1) return std::make_unique<SoloCommunicator>();
  const LeaderPlan plan(node_by_rank, options.leader_groups);
  std::unique_ptr<Communicator> made;
  if (options.transport != Transport::mpi)
    made = plan.node_count() == 1 ? share_memory(group, types, waiting, options)
                                  : make_hierarchical_communicator(group, plan, types, waiting, options);
  else if (plan.node_count() > 1 && options.chose_links)
    options.chose_links({.reason = "MPI's collectives between nodes, as the transport 'mpi' demands"});
  if (made != nullptr) return made;
  if (plan.node_count() > 1 && options.hierarchy.wire != Wire::exact)
    throw UserError(
        "gradients are compressed between nodes only by the transport 'hierarchical', but these ranks use MPI's "
        "collectives; choose that transport, or compress on the ranks with bfloat16");
  return std::make_unique<MpiCommunicator>(group, types, waiting);
}

}  // namespace farandole
