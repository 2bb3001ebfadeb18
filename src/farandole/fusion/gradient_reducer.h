// Reduces gradients bucket by bucket while backward is still running: in memory of the host (HostReducer)
// or of a device (DeviceReducer).
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
// The timeline records the moment at which a bucket and all earlier ones are full, as "bucket 3 ready". The
// time from then to the start of its collective is the delay of the reduction itself. The event
// contains the number of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  const BucketPlan& plan() const { return plan_; }
  std::byte* data(std::size_t tensor) const;  // not between mark_ready(tensor) and finish()
  std::size_t bucket_bytes() const;           // memory of all buckets
  // Bytes that this rank has passed to collectives since the start. Do not call it
  // between mark_ready() and finish().
  std::size_t sent_bytes() const { return sent_bytes_; }

  // Reports that this rank's gradient of the tensor is complete. Call it once per tensor and step.
  // Thread safety: any thread may call this at any time.
  virtual void mark_ready(std::size_t tensor) = 0;
  // Starts the remaining buckets; gradients that were not marked take part as zeros. Calls `reduced` for each
  // bucket in order, as soon as it is reduced, while later buckets are still being reduced. Returns when all
  // buckets are reduced.
  // Throws: the error of a reduction that failed.
  // Thread safety: call from the training thread only.
  void finish(const std::function<void(std::size_t bucket)>& reduced = {});

  // True if any rank had this gradient. Valid from the reduction of its bucket to the next mark_ready().
  bool present(std::size_t tensor) const { return present_[tensor] != 0; }
  // Returns the first tensor, in the order of the plan, whose gradient was not finite on some rank. The
  // result is the same on all ranks.
  std::optional<std::size_t> first_nonfinite() const { return first_nonfinite_; }
  // The same for the gradients of this rank before they were reduced.
  std::optional<std::size_t> first_nonfinite_here() const;
  // True if `stop_requested` returned true on any rank. The same on all ranks.
  bool stopping() const { return stopping_; }
  // The order in which this rank's gradients became ready in the first step, by tensor. Gradients that did
  // not become ready come last. Empty before finish() of that step.
  std::span<const std::size_t> first_order() const;
  // For stall reports (CollectiveRegistry::Explain): the tensors of "bucket 3", or of the next bucket for "",
  // and those that this rank has not produced in this step. Never waits.
  // Thread safety: any thread may call this at any time.
  std::optional<CollectiveRegistry::Meaning> explain(std::string_view collective) const;

 protected:
  enum class Gradient : char { missing, finite, nonfinite };

  // `stop_requested` is called when the last bucket of a step starts. `timeline` must outlive this object.
  // Throws: UserError if a tensor has a type that gradients cannot have.
  GradientReducer(BucketPlan plan, Timeline& timeline, std::function<bool()> stop_requested);

  // What a reducer does with a bucket. The thread that marks gradients calls push(), with mutex_; the
  // training thread calls the others.
  virtual std::byte* payload(std::size_t bucket) const = 0;
  virtual std::byte* flags(std::size_t bucket) const = 0;  // of this step, in memory of the host
  virtual void set_zero(std::size_t tensor) = 0;
  virtual void push(std::size_t bucket) = 0;  // it is full, and all earlier ones were pushed
  // Waits until it is reduced; then learn_presence() has been called for it.
  virtual void await(std::size_t bucket) = 0;
  virtual void end_step() = 0;  // all buckets are reduced

  const std::string& name(std::size_t bucket) const { return names_[bucket]; }
  std::size_t bucket_of(std::size_t tensor) const { return place_[tensor].first; }
  Timeline& timeline() const { return timeline_; }
  // Records a gradient that is ready. Call push_full_buckets() afterwards, both with mutex_.
  // Throws: Error if it was marked in this step already.
  void mark(std::size_t tensor, Gradient gradient);
  void push_full_buckets();
  bool has_all(std::size_t bucket) const;  // this rank has marked all of its gradients
  // To be called when the bucket starts.
  void started(std::size_t bucket, std::size_t bytes_to_send);
  // Reads from the flags which gradients some rank has; it has all that this one has.
  void learn_presence(std::size_t bucket);
  // Whether a flag behind the payload of the bucket says yes on any rank. The last flag asks for a stop.
  bool is_set(std::size_t bucket, const std::byte* its_flags, std::size_t index) const;
  bool asks_for_stop(const std::byte* flags_of_last_bucket) const;

  std::mutex mutex_;  // backward may run hooks on several threads
  std::optional<std::size_t> first_nonfinite_;
  bool stopping_ = false;

 private:
  void set_flag(std::size_t tensor, Gradient gradient);

  const BucketPlan plan_;
  Timeline& timeline_;
  const std::function<bool()> stop_requested_;
  std::vector<std::string> names_;                          // by bucket
  std::vector<NameId> ready_names_;                         // by bucket, in the timeline
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // tensor → (bucket, slot)
  std::vector<std::size_t> missing_;                        // by bucket: gradients that were not marked
  std::vector<Gradient> marked_, here_;  // by tensor: in this step; in the last one. See progress_
  std::vector<char> present_;            // by tensor
  std::size_t pushed_ = 0;               // buckets of this step. See progress_
  // Held for writes of marked_ and pushed_, and by explain(), which cannot have mutex_: a device may connect
  // the ranks in the first reduction, and the thread that starts it then waits with mutex_ for other ranks.
  mutable std::mutex progress_;
  std::vector<std::size_t> first_order_;
  bool first_step_ = true;
  std::size_t sent_bytes_ = 0;
};

// Checks at the start that all ranks reduce the same tensors: compares a hash of the plan on all ranks.
// Throws: UserError on every rank if a hash differs, with a table of the tensors that differ (name, dtype
// and shape by rank).
// Thread safety: call from the training thread only.
// Collective: every rank of the group must call this in the same order.
void check_plan_agreement(Communicator& communicator, const BucketPlan& plan);

}  // namespace farandole
