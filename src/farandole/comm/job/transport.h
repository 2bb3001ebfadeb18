// Chooses how the ranks of a group communicate. This is the only place that knows all kinds of communicators.
// Thread safety: any thread may call this at any time.
#pragma once

#include <functional>
#include <memory>
#include <mpi.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "farandole/comm/communicator.h"
#include "farandole/comm/hierarchical/hierarchical_communicator.h"
#include "farandole/comm/job/link_choice.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/mpi/mpi_types.h"

namespace farandole {

enum class Transport {
  automatic,     // measures whether `hierarchical` or `mpi` is faster
  hierarchical,  // shared memory within nodes, the fastest links between nodes
  mpi,           // MPI's collectives only
  tcp,           // as `hierarchical`, with TCP links
  mpi_messages,  // as `hierarchical`, with links of MPI messages
};

// Parses "auto", "hierarchical" or "mpi". `name` is that of the option, for the message.
// Throws: UserError for any other text.
Transport parse_transport(std::string_view text, std::string_view name = "--transport");
// The value of the environment variable FARANDOLE_TRANSPORT; `automatic` if it is not set.
Transport requested_transport();

struct TransportOptions {
  Transport transport = requested_transport();
  int leader_groups = 0;  // leader groups between nodes; 0 means that LeaderPlan chooses
  // Ranks of the job on this machine; more than those of the node if several containers share the machine.
  int machine_ranks = 1;
  HierarchicalCommunicator::Options hierarchy = {};
  // How the nodes exchange data. If it is not known on any rank, this is measured.
  std::optional<LinkChoice> known_links = {};
  // Called on every rank if the group has several nodes.
  std::function<void(const LinkChoice& choice)> chose_links = {};
  // Called on one rank if ranks cannot share memory or cannot connect by TCP. They use MPI instead. `reason`
  // says why they cannot.
  std::function<void(const std::string& reason)> fell_back = {};
};

// Creates a communicator among the ranks of `group`. Rank r runs on node node_by_rank[r]; the numbers can be
// any, but must be equal for ranks of the same node. `group` is only read. `types` must outlive the result.
// Throws: UserError on all ranks if the ranks are on several nodes and values cannot travel as
// `hierarchy.wire` says, because the ranks use MPI's collectives.
// Collective: every rank of the group must call this in the same order, with equal arguments.
std::unique_ptr<Communicator> make_communicator(MPI_Comm group, std::span<const int> node_by_rank,
                                                const MpiTypes& types, Waiting waiting,
                                                const TransportOptions& options = {});

}  // namespace farandole
