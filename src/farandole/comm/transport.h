// Picks how the ranks of a group reach each other: the one place that knows all kinds of communicators.
// Usable from any thread; what is collective says so.
#pragma once

#include <functional>
#include <memory>
#include <mpi.h>
#include <span>
#include <string>
#include <string_view>

#include "farandole/comm/communicator.h"
#include "farandole/comm/mpi/hierarchical_communicator.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/mpi/mpi_types.h"

namespace farandole {

enum class Transport {
  automatic,  // the fastest for the group's nodes
  mpi,        // MPI alone, for comparisons
};

// "auto" or "mpi". Throws UserError for anything else.
Transport parse_transport(std::string_view text);
// What the environment variable FARANDOLE_TRANSPORT says; automatic where it is not set.
Transport requested_transport();

struct TransportOptions {
  Transport transport = requested_transport();
  int leader_groups = 0;                // between nodes; 0: as LeaderPlan thinks best
  std::size_t ring_bytes = 512 * 1024;  // allreduces on a leader group from here on go round a ring
  HierarchicalCommunicator::Options hierarchy = {};
  // Told on one rank of a node, why its ranks cannot share memory and communicate through MPI instead.
  std::function<void(const std::string& reason)> fell_back = {};
};

// A communicator among the ranks of `group`; rank r of it runs on node node_by_rank[r] (any numbers, equal on
// the same node). Collective over the group, with equal arguments on all its ranks. `group` is only read;
// `types` outlives the result.
std::unique_ptr<Communicator> make_communicator(MPI_Comm group, std::span<const int> node_by_rank,
                                                const MpiTypes& types, Waiting waiting,
                                                const TransportOptions& options = {});

// The same where all ranks of `node` run on one node: through shared memory, where they can have it.
std::unique_ptr<Communicator> make_node_communicator(MPI_Comm node, const MpiTypes& types, Waiting waiting,
                                                     const TransportOptions& options = {},
                                                     SignatureCheck signatures = SignatureCheck::on);

}  // namespace farandole
