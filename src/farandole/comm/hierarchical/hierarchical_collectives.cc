// The collectives of HierarchicalCommunicator that move data without reducing all of it.
//
// Small messages are reduced by the first ranks of the nodes, as a small allreduce is: every rank puts its
// own data where it belongs and zeros elsewhere. This takes one exchange between the nodes, in which they
// also compare their calls. Large messages are split among the leader groups and pass them as streams. So do
// all messages of two ranks, because a stream between two nodes needs no other exchange either.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "farandole/comm/hierarchical/hierarchical_communicator.h"
#include "farandole/comm/hierarchical/node_slice.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

std::vector<std::size_t> offsets_of(std::span<const std::size_t> sizes) {
  std::vector<std::size_t> offsets(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), std::size_t{0});
  return offsets;
}

// A rank that is alone on its node sends its values from where they are. It copies only those of its own
// part, piece by piece, to where the result will be.
class LoneScatter : public NodeSlice {
 public:
  LoneScatter(const std::byte* from, std::size_t own, void* result, const NodeReduction& reduction)
      : NodeSlice({static_cast<std::byte*>(result)}, 0, reduction), own_(from + own * size_of(dtype)) {
    source = from;
  }

  void gather(std::size_t first, std::size_t count) override {
    const std::size_t begin = first * size_of(dtype);
    if (data != own_) copy_bytes(data + begin, own_ + begin, count * size_of(dtype));
  }

 private:
  const std::byte* own_;
};

}  // namespace

// Waits until all ranks of the node have arrived.
void HierarchicalCommunicator::meet() {
  if (parts_.node == nullptr) return;
  parts_.node->arrive();
  parts_.node->wait_for_all();
}

// The beginning of a call. Afterwards the ranks of the node can access `data`, which must be
// in shared memory.
void HierarchicalCommunicator::meet(std::byte* data, std::size_t bytes) {
  if (parts_.node == nullptr) return;
  parts_.node->arrive(call_, data, bytes);
  parts_.node->wait_for_all();
}

// For each node, the parts of its ranks that leader group k takes. Each rank's data is consecutive,
// in rank order.
std::vector<Ranges> HierarchicalCommunicator::shares_by_node(
    std::size_t k, std::span<const std::size_t> count_by_rank) const {
  const auto offsets = offsets_of(count_by_rank);
  std::vector<Ranges> shares;
  for (const auto& ranks : plan_.members) {
    auto& ranges = shares.emplace_back();
    for (const int rank_of_node : ranks) {
      const auto r = static_cast<std::size_t>(rank_of_node);
      ranges.push_back(share_of(k, offsets[r], count_by_rank[r]));
    }
  }
  return shares;
}

// Passes data through all leader groups that this rank serves.
void HierarchicalCommunicator::exchange(
    Slice& slice, const std::function<Stream(std::size_t k, const Cut& cut)>& stream_of) {
  for (const std::size_t k : served_) {
    auto& group = *parts_.leader_groups[k];
    group.start(hash_of(call_), slice, stream_of(k, group.cut(slice.wire_dtype())));
  }
  wait_for_groups();
}

// Fills the parts of other ranks. `own_bytes` at offset `own` of `all` are this rank's part.
void HierarchicalCommunicator::gather_by_leader(std::byte* all, std::size_t bytes, std::size_t own,
                                                std::size_t own_bytes) {
  std::fill_n(all, own, std::byte{0});
  std::fill_n(all + own + own_bytes, bytes - own - own_bytes, std::byte{0});
  reduce_by_leader(all, bytes, DType::uint8, ReduceOp::sum);
}

// On a node with several ranks, the first one has memory in which they put their parts, and from which they
// copy all parts.
void HierarchicalCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                          std::span<const std::size_t> bytes_by_rank) {
  begin(all_gather_call(name, bytes_by_rank));
  const auto offsets = offsets_of(bytes_by_rank);
  const std::size_t total = sum(bytes_by_rank), own = offsets[static_cast<std::size_t>(rank)];
  const std::size_t own_bytes = bytes_by_rank[static_cast<std::size_t>(rank)];
  auto* const all = static_cast<std::byte*>(out);
  const auto put_own = [&](std::byte* board) {
    if (in != board + own) copy_bytes(board + own, in, own_bytes);
  };
  attempt([&] {
    if (is_small(total)) {
      put_own(all);
      return gather_by_leader(all, total, own, own_bytes);
    }
    auto* board = all;
    if (parts_.node != nullptr) {
      const bool first = own_local_ == 0;
      meet(first ? shared_.get(*parts_.node, total) : nullptr, first ? total : 0);
      board = parts_.node->data_of(0);
    }
    put_own(board);
    meet();
    Slice slice;
    slice.data = board;
    slice.dtype = DType::uint8;
    exchange(slice, [&](std::size_t k, const Cut& cut) {
      return all_gather_stream(own_node_, shares_by_node(k, bytes_by_rank), cut);
    });
    if (parts_.node == nullptr) return;
    meet();
    copy_bytes(all, board, total);
    meet();  // the first rank may use its memory for another call
  });
}

void HierarchicalCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  begin(broadcast_call(name, bytes, root));
  auto* const own = static_cast<std::byte*>(data);
  const int root_node = plan_.node[static_cast<std::size_t>(root)];
  attempt([&] {
    if (is_small(bytes)) return gather_by_leader(own, bytes, 0, rank == root ? bytes : 0);
    auto* board = own;
    if (parts_.node != nullptr) {
      auto& node = *parts_.node;
      const int holder = own_node_ == root_node ? plan_.local[static_cast<std::size_t>(root)] : 0;
      if (own_local_ == holder && !node.shares(own, bytes)) board = shared_.get(node, bytes);
      if (rank == root && board != own) copy_bytes(board, own, bytes);
      meet(own_local_ == holder ? board : nullptr, own_local_ == holder ? bytes : 0);
      board = node.data_of(holder);
    }
    Slice slice;
    slice.data = board;
    slice.dtype = DType::uint8;
    exchange(slice, [&](std::size_t k, const Cut& cut) {
      return broadcast_stream(own_node_, plan_.node_count(), root_node, share_of(k, 0, bytes), cut);
    });
    if (parts_.node == nullptr) return;
    if (own_node_ != root_node) meet();
    if (board != own && rank != root) copy_bytes(own, board, bytes);
    meet();  // the holder may use its memory for another call
  });
}

// The leader groups reduce in place, so the ranks of a node copy their data first. So does a lone rank if its
// values are weighted before they are sent.
void HierarchicalCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                              std::span<const std::size_t> count_by_rank, DType dtype,
                                              ReduceOp op) {
  begin_reduction(reduce_scatter_call(name, count_by_rank, dtype, op));
  const std::size_t element = size_of(dtype), total = sum(count_by_rank);
  const std::size_t own = static_cast<std::size_t>(rank), own_first = sum(count_by_rank.first(own));
  const NodeReduction reduction(dtype, op, local_size(), size);
  const bool small = is_small(total * element);
  if (!small && parts_.node == nullptr && reduction.before == 1) {
    LoneScatter slice(static_cast<const std::byte*>(in), own_first, out, reduction);
    return attempt([&] {
      exchange(slice, [&](std::size_t k, const Cut& cut) {
        return reduce_scatter_stream(own_node_, shares_by_node(k, count_by_rank),
                                     {share_of(k, 0, count_by_rank[own])}, cut);
      });
    });
  }
  auto* const copy = shared_.get(*this, total * element);
  copy_bytes(copy, in, total * element);
  attempt([&] {
    if (small) return reduce_by_leader(copy, total, dtype, op);
    meet(copy, total * element);
    const auto slice = node_slice(copy, 0, dtype, op);
    exchange(*slice, [&](std::size_t k, const Cut& cut) {
      const auto shares = shares_by_node(k, count_by_rank);
      return reduce_scatter_stream(own_node_, shares, shares[static_cast<std::size_t>(own_node_)], cut);
    });
    meet();
  });
  copy_bytes(out, copy + own_first * element, count_by_rank[own] * element);
}

}  // namespace farandole
