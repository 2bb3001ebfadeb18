// Chooses how the ranks of a group communicate, and by measurement how the nodes of a job exchange data. This
// is the only place that knows all kinds of communicators.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/control/control_communicator.h"
#include "farandole/comm/hierarchical/hierarchical_communicator.h"
#include "farandole/comm/mpi/mpi_runtime.h"
#include "farandole/comm/net/leader_group.h"
#include "farandole/comm/shm/node_barrier.h"

namespace farandole {

enum class LinkKind { tcp, mpi };

// How the nodes of a job exchange data.
struct LinkChoice {
  LinkKind kind = LinkKind::tcp;
  std::size_t window = 1;           // see LeaderGroup::set_window()
  bool compared = false;            // with MPI's own collectives
  bool collectives_of_mpi = false;  // MPI's own collectives are faster than those over links
  std::string reason = {};          // for the user: "TCP between nodes, 128 KiB at once (…)"
};

// Links of a leader group of this kind. `mpi` may be null if the kind is tcp.
// Throws: Error on all ranks if TCP connections cannot be made.
// Collective: every rank of `leaders` must call this.
std::vector<std::unique_ptr<Link>> make_links(LinkKind kind, ControlCommunicator& leaders,
                                              const MpiRuntime* mpi);

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
  // Called on one rank if ranks cannot share memory or cannot connect by TCP. `reason` says why they cannot.
  std::function<void(const std::string& reason)> fell_back = {};
  const MpiRuntime* mpi = nullptr;  // null: MPI is not used
};

// Creates a communicator among the ranks of `group`. Rank r runs on node node_by_rank[r]; the numbers can be
// any, but must be equal for ranks of the same node. `group` is not needed afterwards. If the ranks of a node
// cannot share memory, each of them is a node of its own.
// Throws: UserError on all ranks if the ranks are on several nodes and values cannot travel as
// `hierarchy.wire` says, because the ranks use MPI's collectives.
// Collective: every rank of the group must call this in the same order, with equal arguments.
std::unique_ptr<Communicator> make_communicator(ControlCommunicator& group, std::span<const int> node_by_rank,
                                                Waiting waiting, const TransportOptions& options = {});

}  // namespace farandole
