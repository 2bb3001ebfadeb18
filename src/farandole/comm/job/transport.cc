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
#include "farandole/comm/net/connect_sockets.h"
#include "farandole/comm/net/link.h"
#include "farandole/comm/rank_layout.h"
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
double time_us(Communicator& ranks, int calls, Call call) {
  double best = 0;
  for (int i = 0; i <= calls; ++i) {
    const std::int64_t start = now_ns();
    call();
    const double us = static_cast<double>(now_ns() - start) * 1e-3;
    if (i == 1 || (i > 1 && us < best)) best = us;
  }
  ranks.allreduce("trial", &best, 1, DType::float64, ReduceOp::max);
  return best;
}

double time_slice_us(LeaderGroup& group, Communicator& ranks, Patience patience, std::size_t bytes,
                     int calls) {
  std::vector<float> values(bytes / sizeof(float));
  Slice slice;
  slice.data = reinterpret_cast<std::byte*>(values.data());
  return time_us(ranks, calls, [&] {
    if (bytes <= small_bytes)
      group.start_small(0, false, slice.data, values.size(), slice.dtype, slice.op);
    else
      group.start(0, slice,
                  allreduce_stream(ranks.rank, ranks.size, values.size(), group.cut(slice.wire_dtype())));
    drive(group, &LeaderGroup::busy, LinkWait(patience));
  });
}

double time_allreduce_us(Communicator& communicator, Communicator& ranks, std::size_t bytes, int calls) {
  const auto memory = communicator.allocate(bytes);
  return time_us(ranks, calls, [&] {
    communicator.allreduce("trial", memory.get(), bytes / sizeof(float), DType::float32, ReduceOp::sum);
  });
}

struct Times {
  double small_us = 0, large_us = 0;
  std::size_t window = 1;
};

Times time_links(LeaderGroup& group, Communicator& ranks, Patience patience) {
  Times times;
  times.small_us = time_slice_us(group, ranks, patience, small_bytes, 50);
  double spent_us = 0;
  for (const std::size_t window : windows) {
    group.set_window(window);
    const double us = time_slice_us(group, ranks, patience, large_bytes, 8);
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
LinkChoice choose_links(const std::vector<LinkKind>& kinds, ControlCommunicator& leaders,
                        const MpiRuntime* mpi, Patience patience, std::string& problem) {
  std::optional<LinkChoice> best;
  double best_product = 0;
  std::string reason;
  for (const LinkKind kind : kinds) {
    try {
      LeaderGroup timed(leaders.rank, leaders.size, make_links(kind, leaders, mpi));
      const auto times = time_links(timed, leaders, patience);
      reason += fmt::format("{}{}: {:.0f} µs for 64 B, {:.0f} µs for 1 MiB", reason.empty() ? "" : "; ",
                            text_of(kind), times.small_us, times.large_us);
      // Both sizes count equally. TCP comes first and stays unless MPI is clearly faster.
      const double product = times.small_us * times.large_us;
      if (best && product > clearly_faster * best_product) continue;
      best_product = product;
      best = LinkChoice{.kind = kind, .window = times.window};
    } catch (const Error& error) {
      if (kinds.size() == 1 || error.exit_code() == ExitCode::peer_lost) throw;
      problem = error.what();
    }
  }
  if (!best) throw Error(problem);
  best->reason = fmt::format("{} between nodes, {} KiB at once ({})", text_of(best->kind),
                             LeaderGroup::piece_bytes(leaders.size) / 1024 * best->window, reason);
  return *best;
}

// Throws: UserError if MPI does not run.
std::unique_ptr<MpiCommunicator> mpi_communicator(const ControlCommunicator& group, Waiting waiting,
                                                  const TransportOptions& options,
                                                  SignatureCheck signatures = SignatureCheck::on) {
  if (options.mpi == nullptr) throw UserError("the transport 'mpi' needs a job that Open MPI has started");
  const MpiHandle comm(options.mpi->group_of(group.ranks()));
  return std::make_unique<MpiCommunicator>(comm.comm, options.mpi->types(), waiting, signatures);
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

// True if `here` is true on all ranks.
bool everywhere(Communicator& ranks, bool here) {
  std::uint8_t all = here ? 1 : 0;
  ranks.allreduce("agreement", &all, 1, DType::uint8, ReduceOp::min);
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
std::unique_ptr<SharedMemoryCommunicator> share_memory(ControlCommunicator& node, Waiting waiting,
                                                       const TransportOptions& options) {
  try {
    return std::make_unique<SharedMemoryCommunicator>(
        node, SharedMemoryOptions{.world_ranks = node.ranks(), .patience = patience(waiting, options)});
  } catch (const Error& error) {  // thrown on all ranks
    if (error.exit_code() == ExitCode::peer_lost) throw;
    if (node.rank == 0 && options.fell_back)
      options.fell_back(std::string("the ranks of a node cannot share memory: ") + error.what());
    return nullptr;
  }
}

// The choice of the job, or a new one if there is none yet. The communicator that carries gradients spins, so
// the links are measured like this, also if this communicator sleeps.
// Collective: every rank of `group` must call this. `leaders` are those of leader group 0; null
// on other ranks.
LinkChoice agree_on_links(ControlCommunicator& group, ControlCommunicator* leaders, Patience patience,
                          const TransportOptions& options, bool known) {
  if (options.transport == Transport::mpi_messages) return {.kind = LinkKind::mpi, .window = 4};
  LinkChoice choice;
  if (known) choice = *options.known_links;  // on rank 0; groups may have chosen differently
  std::string failure, problem;
  if (!known && leaders != nullptr) try {
      const bool only_tcp = options.transport == Transport::tcp || options.mpi == nullptr;
      const std::vector<LinkKind> kinds =
          only_tcp ? std::vector{LinkKind::tcp} : std::vector{LinkKind::tcp, LinkKind::mpi};
      choice = choose_links(kinds, *leaders, options.mpi, patience, problem);
    } catch (const Error& error) {  // thrown on all leaders
      failure = error.what();
    }
  // Rank 0 leads its node.
  std::string text = failure.empty() ? choice.reason : failure;
  std::uint64_t values[5] = {failure.empty() ? 0u : 1u, static_cast<std::uint64_t>(choice.kind),
                             choice.window, choice.compared ? 1u : 0u, choice.collectives_of_mpi ? 1u : 0u};
  group.broadcast("links", values, sizeof values, 0);
  broadcast_text(group, text, 0);
  if (values[0] != 0) throw Error(text);
  if (!problem.empty() && leaders != nullptr && leaders->rank == 0 && options.fell_back)
    options.fell_back(problem);
  return {static_cast<LinkKind>(values[1]), static_cast<std::size_t>(values[2]), values[3] != 0,
          values[4] != 0, text};
}

// Null if the ranks of a node cannot share memory, or if MPI's collectives are faster.
std::unique_ptr<Communicator> make_hierarchical_communicator(ControlCommunicator& group,
                                                             const LeaderPlan& plan, Waiting waiting,
                                                             const TransportOptions& options) {
  HierarchicalCommunicator::Parts parts;
  parts.all = std::make_unique<ControlCommunicator>(group.control(), group.ranks());
  parts.world_ranks = group.ranks();
  const auto rank = static_cast<std::size_t>(group.rank);
  const int own_node = plan.node[rank], own_local = plan.local[rank];
  const auto rank_of_job = [&](int member) { return group.ranks()[static_cast<std::size_t>(member)]; };
  std::vector<int> mates;
  for (const int member : plan.members[static_cast<std::size_t>(own_node)])
    mates.push_back(rank_of_job(member));
  const bool alone = mates.size() == 1;
  if (!alone) {
    ControlCommunicator node(group.control(), std::move(mates));
    parts.node = share_memory(node, waiting, options);
  }
  if (!everywhere(group, alone || parts.node != nullptr)) return nullptr;
  auto hierarchy = options.hierarchy;
  hierarchy.patience = patience(waiting, options);
  const bool known = everywhere(group, options.known_links.has_value());
  LinkChoice choice;
  std::string problem;
  for (int k = 0; k < plan.leader_groups; ++k) {
    std::unique_ptr<ControlCommunicator> leaders;
    if (plan.server(own_node, k) == own_local) {
      std::vector<int> servers;
      for (int node = 0; node < plan.node_count(); ++node)
        servers.push_back(rank_of_job(
            plan.members[static_cast<std::size_t>(node)][static_cast<std::size_t>(plan.server(node, k))]));
      leaders = std::make_unique<ControlCommunicator>(group.control(), std::move(servers));
    }
    auto& links = parts.leader_groups.emplace_back();
    if (k == 0)
      choice = agree_on_links(group, leaders.get(), {.yield = hierarchy.patience.yield}, options, known);
    if (leaders == nullptr) continue;
    try {
      links = std::make_unique<LeaderGroup>(leaders->rank, leaders->size,
                                            make_links(choice.kind, *leaders, options.mpi));
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
  const bool chooses = options.transport == Transport::automatic && options.mpi != nullptr;
  // MPI spins. A communicator whose ranks sleep at once does not show which way is faster.
  if (chooses && !choice.compared && hierarchy.patience.spin.count() > 0) {
    const auto mpi = mpi_communicator(group, Waiting::spin, options, SignatureCheck::off);
    compare_with_mpi(*made, *mpi, choice);
  }
  if (options.chose_links) options.chose_links(choice);
  if (chooses && choice.collectives_of_mpi && hierarchy.wire == Wire::exact) return nullptr;
  return made;
}

}  // namespace

std::vector<std::unique_ptr<Link>> make_links(LinkKind kind, ControlCommunicator& leaders,
                                              const MpiRuntime* mpi) {
  if (kind == LinkKind::tcp) return connect_sockets(leaders);
  return make_mpi_links(MpiHandle(mpi->group_of(leaders.ranks())).comm);
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

std::unique_ptr<Communicator> make_communicator(ControlCommunicator& group, std::span<const int> node_by_rank,
                                                Waiting waiting, const TransportOptions& options) {
  if (group.size == 1) return std::make_unique<SoloCommunicator>();
  const LeaderPlan plan(node_by_rank, options.leader_groups);
  if (options.transport == Transport::mpi) {
    if (plan.node_count() > 1 && options.chose_links)
      options.chose_links({.reason = "MPI's collectives between nodes, as the transport 'mpi' demands"});
  } else {
    std::unique_ptr<Communicator> made;
    if (plan.node_count() == 1)
      made = share_memory(group, waiting, options);
    else
      made = make_hierarchical_communicator(group, plan, waiting, options);
    if (made == nullptr && options.mpi == nullptr) {
      const LeaderPlan apart(all_ranks(group.size), 1);
      made = make_hierarchical_communicator(group, apart, waiting, options);
    }
    if (made != nullptr) return made;
  }
  if (plan.node_count() > 1 && options.hierarchy.wire != Wire::exact)
    throw UserError(
        "gradients are compressed between nodes only by the transport 'hierarchical', but these ranks use MPI's "
        "collectives; choose that transport, or compress on the ranks with bfloat16");
  return mpi_communicator(group, waiting, options);
}

}  // namespace farandole
