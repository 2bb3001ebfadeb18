#include "farandole/comm/transport.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "farandole/base/cores.h"
#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/mpi/hierarchical_communicator.h"
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

std::unique_ptr<Communicator> make_hierarchical_communicator(MPI_Comm group, const LeaderPlan& plan,
                                                             const MpiTypes& types, Waiting waiting,
                                                             const TransportOptions& options) {
  HierarchicalCommunicator::Parts parts;
  parts.all = std::make_unique<MpiCommunicator>(group, types, waiting);
  const auto rank = static_cast<std::size_t>(parts.all->rank);
  const int own_node = plan.node[rank], own_local = plan.local[rank];
  MpiHandle node;
  check_mpi(MPI_Comm_split(group, own_node, own_local, &node.comm), "MPI_Comm_split");
  parts.node = make_node_communicator(node.comm, types, waiting, options, SignatureCheck::off);
  for (int k = 0; k < plan.leader_groups; ++k) {
    MpiHandle leader_group;
    split(group, plan.server(own_node, k) == own_local, own_node, leader_group);
    auto& made = parts.leader_groups.emplace_back();
    if (leader_group.comm != MPI_COMM_NULL)
      made = std::make_unique<LeaderCommunicator>(leader_group.comm, types, Waiting::spin,
                                                  SignatureCheck::off, options.ring_bytes);
  }
  return std::make_unique<HierarchicalCommunicator>(std::move(parts), plan, options.hierarchy);
}

}  // namespace

Transport parse_transport(std::string_view text) {
  if (text == "auto") return Transport::automatic;
  if (text == "mpi") return Transport::mpi;
  throw UserError("FARANDOLE_TRANSPORT is '" + std::string(text) + "', but it must be auto or mpi");
}

Transport requested_transport() {
  const char* const text = std::getenv("FARANDOLE_TRANSPORT");
  return text == nullptr ? Transport::automatic : parse_transport(text);
}

std::unique_ptr<Communicator> make_communicator(MPI_Comm group, std::span<const int> node_by_rank,
                                                const MpiTypes& types, Waiting waiting,
                                                const TransportOptions& options) {
  const LeaderPlan plan(node_by_rank, options.leader_groups);
  if (options.transport == Transport::mpi) return std::make_unique<MpiCommunicator>(group, types, waiting);
  if (plan.node_count() == 1) return make_node_communicator(group, types, waiting, options);
  return make_hierarchical_communicator(group, plan, types, waiting, options);
}

std::unique_ptr<Communicator> make_node_communicator(MPI_Comm node, const MpiTypes& types, Waiting waiting,
                                                     const TransportOptions& options,
                                                     SignatureCheck signatures) {
  if (size_of(node) == 1) return std::make_unique<SoloCommunicator>();
  auto mpi = std::make_unique<MpiCommunicator>(node, types, waiting, signatures);
  try {
    SharedMemoryOptions memory{.world_ranks = ranks_in_world(node)};
    memory.patience.yield = outnumber_cores(mpi->size);
    if (waiting == Waiting::yielding && !memory.patience.yield)
      memory.patience.spin = std::chrono::nanoseconds(0);
    return std::make_unique<SharedMemoryCommunicator>(*mpi, std::move(memory));
  } catch (const Error& error) {  // thrown on all ranks
    if (mpi->rank == 0 && options.fell_back) options.fell_back(error.what());
    return mpi;
  }
}

}  // namespace farandole
