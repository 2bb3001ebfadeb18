// What a rank that serves a leader group does with the data of its node. It reads the values of all ranks of
// the node and writes the results to all of them, without help from the others.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <utility>
#include <vector>

#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/net/leader_group.h"

namespace farandole {

// Reduces within nodes first and then between them; each reduction uses the result of the previous one. An
// average is a sum that is scaled at the end. Only float16, which overflows at 65,504, is averaged within
// the node and weighted before the sum between nodes.
struct NodeReduction {
  NodeReduction(DType of_dtype, ReduceOp op, int local_size, int size)
      : dtype(of_dtype), between(op == ReduceOp::average ? ReduceOp::sum : op) {
    const bool average = op == ReduceOp::average;
    const bool early = average && dtype == DType::float16;
    in_node = early ? op : between;
    if (early) before = static_cast<double>(local_size) / size;
    if (average && !early) after = 1.0 / size;
  }

  DType dtype;
  ReduceOp in_node;
  ReduceOp between;
  double before = 1;  // factor between the two reductions
  double after = 1;   // factor at the end
};

class NodeSlice : public Slice {
 public:
  // `by_local_rank` are the slices of the ranks of the node.
  NodeSlice(std::vector<std::byte*> by_local_rank, int own, const NodeReduction& reduction)
      : inputs_(std::move(by_local_rank)), others_(inputs_), places_(inputs_), reduction_(reduction) {
    data = inputs_[static_cast<std::size_t>(own)];
    others_.erase(others_.begin() + own);
    dtype = reduction.dtype;
    op = reduction.between;
  }

  void gather(std::size_t first, std::size_t count) override {
    std::byte* const own = data + first * size_of(dtype);
    if (inputs_.size() > 1) {
      const auto inputs = at(inputs_, first);
      reduce({const_cast<const std::byte* const*>(inputs.data()), inputs.size()}, {&own, 1}, count, dtype,
             reduction_.in_node);
    }
    if (reduction_.before != 1) farandole::scale(own, count, dtype, reduction_.before);
  }

  void scale(std::size_t first, std::size_t count) override {
    if (reduction_.after != 1)
      farandole::scale(data + first * size_of(dtype), count, dtype, reduction_.after);
  }

  void finish(std::size_t first, std::size_t count) override {
    const std::byte* const own = data + first * size_of(dtype);
    if (!others_.empty())
      reduce({&own, 1}, at(others_, first), count * size_of(dtype), DType::uint8, ReduceOp::sum);  // copies
  }

 private:
  std::span<std::byte* const> at(const std::vector<std::byte*>& slices, std::size_t first) {
    for (std::size_t i = 0; i < slices.size(); ++i) places_[i] = slices[i] + first * size_of(dtype);
    return {places_.data(), slices.size()};
  }

  std::vector<std::byte*> inputs_, others_, places_;
  NodeReduction reduction_;
};

}  // namespace farandole
