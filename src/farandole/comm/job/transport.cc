#include "farandole/comm/job/transport.h"

#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/process/cores.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/hierarchical/hierarchical_communicator.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/shm/shared_memory_communicator.h"

namespace farandole {
namespace {

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
  parts.all = std::make_unique<MpiCommunicator>(group, types, Waiting::spin, SignatureCheck::off);
  const auto rank = static_cast<std::size_t>(parts.all->rank);
  const int own_node = plan.node[rank], own_local = plan.local[rank];
  MpiHandle node;
  check_mpi(MPI_Comm_split(group, own_node, own_local, &node.comm), "MPI_Comm_split");
  const bool alone = plan.local_size(own_node) == 1;
  if (!alone) parts.node = share_memory(node.comm, types, waiting, options);
  if (!everywhere(group, alone || parts.node != nullptr)) return nullptr;
  auto hierarchy = options.hierarchy;
  hierarchy.patience = patience(waiting, options);
  const bool known = everywhere(group, options.known_links.has_value());
  LinkChoice choice;
  std::string problem;
  for (int k = 0; k < plan.leader_groups; ++k) {
    MpiHandle leaders;
    split(group, plan.server(own_node, k) == own_local, own_node, leaders);
    auto& links = parts.leader_groups.emplace_back();
    std::unique_ptr<MpiCommunicator> mpi;
    const bool serves = leaders.comm != MPI_COMM_NULL;
    if (serves)
      mpi = std::make_unique<MpiCommunicator>(leaders.comm, types, Waiting::spin, SignatureCheck::off);
    if (k == 0)
      choice =
          agree_on_links(group, leaders.comm, mpi.get(), {.yield = hierarchy.patience.yield}, options, known);
    if (!serves) continue;
    try {
      links =
          std::make_unique<LeaderGroup>(mpi->rank, mpi->size, make_links(choice.kind, leaders.comm, *mpi));
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
  auto& mpi = *parts.all;
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
