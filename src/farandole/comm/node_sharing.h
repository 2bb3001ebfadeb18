// What the ranks of a communicator that are on one node can share: memory, and the data of a collective that
// each of them reads by itself.
// Thread safety: none; use from one thread at a time. This is the thread that uses the communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/reduce_op.h"

namespace farandole {

// Whether a rank also gets views of blocks.
enum class Views { no, yes };

// Zeroed blocks of memory that are the same on all ranks of a node. They have no name, and the kernel frees
// them when the last rank has dropped them or has ended in any way.
class NodeBlocks {
 public:
  virtual ~NodeBlocks() = default;
  const std::vector<std::byte*>& blocks() const { return blocks_; }
  // The same blocks at other addresses. What this rank writes there is its own: no other rank sees it, and
  // this rank no longer sees what others write to the same pages, until drop_changes(). Empty without Views.
  const std::vector<std::byte*>& views() const { return views_; }
  // Whether this rank has written to its views. Takes as long as the kernel needs for 8 bytes a page.
  virtual bool has_changes() const = 0;
  virtual void drop_changes() = 0;
  // What this rank writes from now on is its own. No rank may write while ranks of the node call this.
  virtual void make_private() = 0;

 protected:
  std::vector<std::byte*> blocks_, views_;
};

class NodeSharing {
 public:
  virtual ~NodeSharing() = default;

  // This rank among the ranks of the communicator on this node, and their number.
  virtual int node_rank() const = 0;
  virtual int node_size() const = 0;
  // All ranks of the communicator are on this node. Otherwise they cannot borrow().
  virtual bool is_whole() const = 0;

  // Each rank touches its part of each block first, so that these pages are on its NUMA node.
  // Throws: Error on all ranks of the node, with the first reason, if they cannot share this much memory, or
  // if the kernel does not tell which pages of a view a rank has written.
  // Collective: every rank of the node must call this in the same order.
  virtual std::shared_ptr<NodeBlocks> map(std::span<const std::size_t> bytes, Views views) = 0;
  // Returns when every rank of the node has called it. No other collective than borrow() may be in progress.
  // `name` must be a string literal.
  virtual void meet(const char* name) = 0;
  // Begins a collective in which each rank reads the data of all ranks by itself. Returns all ranks' data, by
  // rank, when all ranks have called it. The result is valid until give_back(), and `data`, which must be
  // from the communicator's allocate(), may not be changed until all ranks have come to a later meet().
  // Throws: as an allreduce.
  // Collective: every rank of the group must call this in the same order.
  virtual std::span<const std::byte* const> borrow(std::string_view name, const void* data, std::size_t count,
                                                   DType dtype, ReduceOp op) = 0;
  // This rank has read what it has borrowed.
  virtual void give_back() = 0;

  // The elements [first, last) of `count` that belong to this rank if the ranks of the node divide them.
  // Parts begin at cache lines.
  std::pair<std::size_t, std::size_t> own_part(std::size_t count, std::size_t element_bytes) const {
    return node_part(count, element_bytes, node_rank(), node_size());
  }
  static std::pair<std::size_t, std::size_t> node_part(std::size_t count, std::size_t element_bytes, int part,
                                                       int parts);
};

}  // namespace farandole
