// How a bucket's gradients travel between ranks: as they are, or as something smaller. Used by the reducer's
// thread; state() and restore() by the training thread while nothing is reduced.
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

// A part of what a compressor remembers from step to step, which differs between ranks.
struct CompressorState {
  std::string name;  // "residual/fc1.weight"
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

class Compressor {
 public:
  virtual ~Compressor() = default;

  // Reduces plan.buckets[bucket], whose elements lie at `memory`, in place. Afterwards all ranks hold the
  // same bits. Of the elements behind the payload only this is promised: they are zero where they were zero
  // on all ranks, else positive. op: sum or average. Collective.
  virtual void allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                         std::size_t bucket, std::byte* memory, ReduceOp op) = 0;
  // Bytes that this rank gave to collectives since the start.
  std::size_t sent_bytes() const { return sent_bytes_; }

  // All that is needed to go on as if never stopped.
  virtual std::vector<CompressorState> state() const { return {}; }
  // Throws CorruptInput where a part does not fit its tensor; parts of unknown tensors are ignored.
  virtual void restore(std::span<const CompressorState> state) = 0;

 protected:
  std::size_t sent_bytes_ = 0;
};

// Buckets travel as they are.
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

}  // namespace farandole
