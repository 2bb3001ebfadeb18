// Memory that all ranks of a node map, for as long as any of them uses it.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "farandole/comm/communicator.h"
#include "farandole/comm/node_sharing.h"

namespace farandole {

// The ranks of `node` must be on one node. Each rank touches its NodeSharing::node_part() of each block
// first, so that these pages are on its NUMA node, and a lack of memory is found here.
// Throws: as NodeSharing::map().
// Collective: every rank of `node` must call this in the same order.
std::shared_ptr<NodeBlocks> share_blocks(Communicator& node, std::span<const std::size_t> bytes, Views views);
// Of a rank that is alone on its node; its views are the blocks.
std::shared_ptr<NodeBlocks> blocks_of_one(std::span<const std::size_t> bytes);

}  // namespace farandole
