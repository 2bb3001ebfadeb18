// Reduces gradients bucket by bucket while backward is still running.
//
// Gradients are stored in the buckets: the gradient of tensor i must be written to data(i). A bucket is
// reduced as soon as all of its gradients are ready and all earlier buckets have been started. This order is
// given by the plan on every rank, so ranks that produce gradients in different orders, or lack some, cannot
// block each other. After each bucket's payload there is one element per tensor that says whether this rank
// has its gradient and whether it is finite, and one more that says whether this rank must stop. They are
// summed with the payload, so that every rank learns without an extra message whether any rank had the
// gradient, whether it was finite on all ranks, and whether any rank must stop.
// Thread safety: call from the training thread only. Functions say where other threads may call them.
//
// Buckets can be on a device (gpu_buckets.h). Then mark_ready() means that the gradient has been queued on
// the calling thread's current stream, and flags do not say whether it is finite. finish() lets the current
// stream wait and returns while the device still computes. The host waits for the device in two cases only.
// If this rank lacks a gradient, it must read the flags to know whether another rank has it. finish() also
// waits for the reductions of the previous step. They say whether its gradients were finite and whether a
// rank must stop. The device stays busy with the current step. In the first step, the host also waits until
// all ranks have come to the first reduction, because NCCL connects them there.
//
// The timeline records the moment at which a bucket and all earlier ones are full, as "bucket 3 ready". The
// time from then to the start of its collective is the delay of the reduction itself. In some steps
// (notes_gradients()), the timeline also records the moment at which each gradient is ready, so that the
// analyzer can predict the effect of other buckets. Both events contain the number of bytes.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/fusion/gpu_buckets.h"
#include "farandole/fusion/half_compressor.h"
#include "farandole/fusion/reduction_queue.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// True for steps in which the moments of gradients are recorded. They are so rare that
// the cost is negligible.
constexpr bool notes_gradients(std::int64_t step) {
  return step >= 0 && (step < 32 || step % 32 == 0);
}

class GradientReducer {
 public:
  // `op` is sum or average. With `compressed`, which is float16 or bfloat16, gradients are sent in this type.
  // `stop_requested` is called when the last bucket of a step starts. From now on only the reducer uses
  // `communicator` and `stop_requested`, on the thread described in reduction_queue.h. With a device,
  // gradients cannot be compressed, and `communicator` is not used. All references must outlive this object.
  GradientReducer(Communicator& communicator, BucketPlan plan, ReduceOp op, Timeline& timeline,
                  std::optional<DType> compressed = std::nullopt, std::function<bool()> stop_requested = {},
                  BucketDevice* device = nullptr);
  // If a thread runs the collectives, waits for one that is running. If its peers never enter it, it ends
  // with the job. Otherwise an allreduce that is under way is abandoned.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  const BucketPlan& plan() const { return plan_; }
  bool on_device() const { return device_ != nullptr; }
  std::byte* data(std::size_t tensor);  // not between mark_ready(tensor) and finish()
  std::size_t bucket_bytes() const;     // memory of all buckets
  // Bytes that this rank has passed to collectives since the start. Do not call it
  // between mark_ready() and finish().
  std::size_t sent_bytes() const { return sent_bytes_; }

  // Reports that this rank's gradient of the tensor is complete. Call it once per tensor and step. With a
  // device, the gradient may be elsewhere in its memory, at `from` in the bucket's layout. It is copied into
  // the bucket before the reduction. Do not change this memory before work that is queued after finish().
  // Thread safety: any thread may call this at any time.
  void mark_ready(std::size_t tensor, const std::byte* from = nullptr);
  // Starts the remaining buckets; gradients that were not marked take part as zeros. Calls `reduced` for each
  // bucket in order, as soon as it is reduced, while later buckets are still being reduced. Returns when all
  // buckets are reduced. With a device, "is reduced" means: for work that is queued on the current stream.
  // Throws: the error of a reduction that failed.
  // Thread safety: call from the training thread only.
  void finish(const std::function<void(std::size_t bucket)>& reduced = {});
  // With a device, waits until it is known of all finished steps whether they were finite and whether a
  // rank must stop.
  // Thread safety: call from the training thread only.
  void settle();
  // Call this after finish() if nobody uses the gradients: what the device finds out about them is forgotten.
  // Thread safety: call from the training thread only.
  void discard();
  // What the device has found out about finished steps, and nobody has asked yet.
  struct Unreported {
    std::optional<std::size_t> nonfinite;  // as first_nonfinite()
    bool stopping = false;
  };
  // Waits for it. Do not use this reducer afterwards.
  // Thread safety: call from the training thread only.
  Unreported retire();
  // Makes this reducer, with the same tensors, report it in its first step.
  void report_later(const Unreported& unreported);
  // True if any rank had this gradient. Valid from the reduction of its bucket to the next mark_ready().
  bool present(std::size_t tensor) const { return present_[tensor] != 0; }
  // Returns the first tensor, in the order of the plan, whose gradient was not finite on some rank, or is not
  // finite after its compressed reduction. The result is the same on all ranks. During finish(), only
  // buckets up to the current one are known. Sums that overflow without compression are found as gradients
  // of the next step. On a device, overflows are found, and the result is that of the previous step unless
  // settle() was called.
  std::optional<std::size_t> first_nonfinite() const { return first_nonfinite_; }
  // The same for the gradients of this rank before they were reduced.
  std::optional<std::size_t> first_nonfinite_here() const;
  // True if `stop_requested` returned true on any rank in this step; with a device, in the step before this
  // one unless settle() was called. The same on all ranks.
  bool stopping() const { return stopping_; }
  // True if reductions can multiply gradients by a factor at no cost. They can do so on a device, unless an
  // element type is so short that small gradients would become zero.
  bool can_multiply() const;
  // For the buckets that are started from now on. Only if can_multiply().
  void multiply_by(double factor) { factor_ = factor; }
  // See DeviceBucket::found_nonfinite(); null without a device.
  float* found_nonfinite(std::size_t bucket) const;
  // The order in which this rank's gradients became ready in the first step, by tensor. Gradients that did
  // not become ready come last. Empty before finish() of that step.
  std::span<const std::size_t> first_order() const;
  // For stall reports (CollectiveRegistry::Explain): the tensors of "bucket 3", or of the next bucket for "",
  // and those that this rank has not produced in this step. Never waits.
  // Thread safety: any thread may call this at any time.
  std::optional<CollectiveRegistry::Meaning> explain(std::string_view collective) const;

 private:
  struct State {
    std::string name;
    NameId ready;                         // name in the timeline
    Buffer memory;                        // empty if it is on a device
    std::unique_ptr<DeviceBucket> there;  // null if it is not
    std::size_t missing = 0;              // gradients that were not marked in this step
    std::vector<DeviceBucket::Gradient> elsewhere{};
  };
  void push_full_buckets();
  void reduce(std::size_t bucket);
  void start(std::size_t bucket);
  void start_on_device(std::size_t bucket);
  void ask_for_stop(std::size_t bucket);
  std::byte* flag(std::size_t bucket, std::size_t index) const;
  enum class Gradient : char { missing, finite, nonfinite };
  void set_flag(std::size_t tensor, Gradient gradient);
  void look_for_nonfinite(std::size_t bucket);
  void learn_presence(std::size_t bucket);
  bool asks_for_stop() const;
  void await_unsettled();
  void note(std::size_t tensor);

  Communicator& communicator_;
  const BucketPlan plan_;
  const ReduceOp op_;
  Timeline& timeline_;
  std::vector<NameId> gradient_names_;  // by tensor, in the timeline
  std::optional<HalfCompressor> compressor_;
  const std::function<bool()> stop_requested_;
  BucketDevice* const device_;
  std::vector<State> buckets_;
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // tensor → (bucket, slot)
  std::vector<Gradient> marked_, here_;  // by tensor: in this step; in the last one. See progress_
  std::vector<char> present_;            // by tensor
  std::optional<std::size_t> first_nonfinite_;
  std::optional<std::size_t> carried_;  // of an earlier step on the device, to be reported in the next one
  bool stopping_ = false;
  double factor_ = 1;
  int turn_ = 0;                  // of this step on the device
  std::optional<int> unsettled_;  // turn of a finished step of which only the device knows the result

  mutable std::mutex mutex_;  // backward may run hooks on several threads
  std::size_t pushed_ = 0;    // buckets of this step that were given to the queue. See progress_
  // Held for writes of marked_ and pushed_, and by explain(), which cannot have mutex_: a device may connect
  // the ranks in the first reduction, and the thread that starts it then waits with mutex_ for other ranks.
  mutable std::mutex progress_;
  std::vector<std::size_t> first_order_;
  bool first_step_ = true;
  std::size_t sent_bytes_ = 0;
  std::unique_ptr<ReductionQueue> queue_;  // uses all members above, so it is destroyed first
};

// Checks at the start that all ranks reduce the same tensors: compares a hash of the plan on all ranks.
// Throws: UserError on every rank if a hash differs, with a table of the tensors that differ (name, dtype
// and shape by rank).
// Thread safety: call from the training thread only.
// Collective: every rank of the group must call this in the same order.
void check_plan_agreement(Communicator& communicator, const BucketPlan& plan);

}  // namespace farandole
