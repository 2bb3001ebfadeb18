// Links over sockets among the ranks of a group.
// Thread safety: any thread may call this at any time.
#pragma once

#include <memory>
#include <vector>

#include "farandole/comm/control/control_communicator.h"
#include "farandole/comm/net/link.h"

namespace farandole {

// Connects this rank with every other rank of `group`. Returns the links by rank, null for this rank. Ranks
// listen and connect on the interfaces that the environment variable FARANDOLE_INTERFACE names (separated by
// commas), by default on all of them, and try addresses in a network of the peer first, the fastest interface
// before others. Ranks of one node are connected by Unix sockets.
// Throws: Error on all ranks, with the first reason, if a connection cannot be made within 30 s.
// Collective: every rank of the group must call this in the same order.
std::vector<std::unique_ptr<Link>> connect_sockets(ControlCommunicator& group);

}  // namespace farandole
