// Reduces the gradients of a bucket unchanged or in a compressed form.
// Thread safety: none; use from one thread at a time. The thread that reduces calls allreduce(). The training
// thread calls state() and restore(), while nothing is being reduced.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// A part of the state that a compressor keeps between steps. It differs between ranks.
struct CompressorState {
  std::string name;  // "residual/fc1.weight"
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

class Compressor {
 public:
  virtual ~Compressor() = default;

  // Reduces plan.buckets[bucket] in place; its elements are at `memory`. Afterwards all ranks have the same
  // bits. The elements after the payload are only guaranteed to be zero if they were zero on all ranks, and
  // positive otherwise. `op` is sum or average.
  // Collective: every rank of the group must call this in the same order.
  virtual void allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                         std::size_t bucket, std::byte* memory, ReduceOp op) = 0;
  // Bytes that this rank has passed to collectives since the start.
  std::size_t sent_bytes() const { return sent_bytes_; }

  // The state that is needed to continue as if the run had not been interrupted.
  virtual std::vector<CompressorState> state() const { return {}; }
  // Ignores parts of unknown tensors.
  // Throws: CorruptInput if a part does not match its tensor.
  virtual void restore(std::span<const CompressorState> state) = 0;

 protected:
  std::size_t sent_bytes_ = 0;
};

// Reduces buckets without compression.
class PlainCompressor : public Compressor {
 public:
  void allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                 std::size_t bucket, std::byte* memory, ReduceOp op) override {
    const auto& what = plan.buckets[bucket];
    communicator.allreduce(name, memory, what.count(), what.dtype, op);
    sent_bytes_ += what.bytes();
  }
  void restore(std::span<const CompressorState>) override {}
};

// The parts of each tensor's gradients that compression has left out so far on this rank (error feedback).
// Stored per tensor instead of per bucket, so that a new bucket plan loses nothing.
class Residuals {
 public:
  explicit Residuals(const std::vector<TensorSpec>& tensors);

  // The residual of the tensor, with its type and length; initially zero.
  template <class T>
  std::span<T> of(std::size_t tensor) {
    auto& bytes = ready(tensor);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  void save(std::vector<CompressorState>& to) const;  // saved as "residual/NAME"; only those that were used
  void restore(std::span<const CompressorState> from);

 private:
  std::vector<std::byte>& ready(std::size_t tensor);

  const std::vector<TensorSpec> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
};

// The state with this name; nullptr if there is none.
// Throws: CorruptInput if it has another type or shape.
const CompressorState* find_state(std::span<const CompressorState> states, const std::string& name,
                                  DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace farandole
