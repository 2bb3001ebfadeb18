// Reduces gradients in memory of a device.
//
// The host does not wait for the device: mark_ready() means that the gradient has been queued on the
// calling thread's current stream, and "is reduced" means: for work that is queued on the current stream
// from then on. finish() returns while the device still computes. It only waits for the reductions of the
// previous step, which say whether its gradients were finite and whether a rank must stop; the device stays
// busy with the current step. So first_nonfinite() and stopping() are about the step before the one that
// finish() has ended, unless await_results() was called. Overflows of sums are found as well;
// first_nonfinite_here() is not known.
//
// There are two exceptions. If this rank lacks a gradient, it must read the flags to know whether another
// rank has it. In the first step, the host also waits until all ranks have come to the first reduction,
// because NCCL connects them there.
// Thread safety: call from the training thread only. Functions say where other threads may call them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/reduce_op.h"
#include "farandole/fusion/gpu_buckets.h"
#include "farandole/fusion/gradient_reducer.h"

namespace farandole {

class DeviceReducer final : public GradientReducer {
 public:
  // `op` is sum or average. All references must outlive this object. If the reduction is divided, each rank
  // gets only its part of each bucket; all other results are the same.
  // Throws: UserError if a tensor has a type that gradients cannot have.
  DeviceReducer(BucketDevice& device, BucketPlan plan, ReduceOp op, Timeline& timeline,
                std::function<bool()> stop_requested = {}, Divided divided = Divided::no);
  // Waits for reductions that are under way, and for all work of the device that may use the buckets.
  ~DeviceReducer() override;

  // Thread safety: any thread may call this at any time.
  void mark_ready(std::size_t tensor) override;
  // The same for a gradient that is elsewhere in memory of the device, at `from` in the bucket's layout.
  // It is copied into the bucket before the reduction. Do not change this memory before work that is
  // queued after finish().
  // Thread safety: any thread may call this at any time.
  void mark_ready_elsewhere(std::size_t tensor, const std::byte* from);

  bool is_divided() const { return divided_ == Divided::yes; }
  // Gathers the parts of all buckets, in order with the current stream. Call this after finish().
  // Collective: every rank of the group must call this in the same order.
  void gather();
  // The elements of the bucket's payload that this rank gets.
  std::pair<std::size_t, std::size_t> own_part(std::size_t bucket) const {
    const auto& its = plan().buckets[bucket];
    return divided_ == Divided::yes ? device_.own_part(its)
                                    : std::pair<std::size_t, std::size_t>(0, its.payload);
  }

  // Waits until it is known of all finished steps whether they were finite and whether a rank must stop.
  void await_results();
  // Call this after finish() if nobody uses the gradients: what the device finds out about them is forgotten.
  void discard();
  // What the device has found out about finished steps, and nobody has asked yet.
  struct Unreported {
    std::optional<std::size_t> nonfinite;  // as first_nonfinite()
    bool stopping = false;
  };
  // Waits for it. Do not use this reducer afterwards.
  Unreported retire();
  // Makes this reducer, with the same tensors, report it in its first step.
  void report_later(const Unreported& unreported);

  // True if reductions can multiply gradients by a factor at no cost. They can unless an element type is so
  // short that small gradients would become zero.
  bool can_multiply() const;
  // For the buckets that are started from now on. Only if can_multiply().
  void multiply_by(double factor) { factor_ = factor; }
  // See DeviceBucket::found_nonfinite().
  float* found_nonfinite(std::size_t bucket) const { return buckets_[bucket].memory->found_nonfinite(); }

 private:
  struct State {
    std::unique_ptr<DeviceBucket> memory;
    std::vector<DeviceBucket::Gradient> elsewhere{};  // of this step
  };
  std::byte* payload(std::size_t bucket) const override { return buckets_[bucket].memory->data(); }
  std::byte* flags(std::size_t bucket) const override { return buckets_[bucket].memory->flags(set_); }
  void set_zero(std::size_t tensor) override;
  void push(std::size_t bucket) override;
  void await(std::size_t bucket) override;
  void end_step() override;
  void await_unread();

  BucketDevice& device_;
  const Divided divided_;
  std::vector<State> buckets_;
  double factor_ = 1;
  int set_ = 0;                         // of flags, of this step
  std::optional<int> unread_;           // that of a finished step of which only the device knows the result
  std::optional<std::size_t> carried_;  // not finite in an earlier step, to be reported in the next one
};

}  // namespace farandole
