// Reduces gradients bucket by bucket while backward still computes.
//
// Gradients live in the buckets: data(i) is where tensor i's gradient is to be written. A bucket is reduced
// as soon as all of its gradients are ready and all buckets before it have been sent off; the order is the
// plan's on every rank, so ranks that produce gradients in different orders, or not at all, cannot block each
// other. One element behind each bucket's payload and a tensor says whether this rank has its gradient; it is
// summed with the others, so that every rank learns at no extra message whether any rank had one.
//
// The moment at which a bucket and those before it are full goes into the timeline as "bucket 3 ready": what
// passes from then to its collective's start is the reduction's own lateness. In some steps
// (notes_gradients()) so does the moment at which each gradient is ready: so the analyzer can tell what other
// buckets would do. Both with their bytes.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/fusion/compressor.h"
#include "farandole/fusion/reduction_queue.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// Whether a step of this number is one in which gradients are noted: few enough to cost nothing.
constexpr bool notes_gradients(std::int64_t step) {
  return step >= 0 && (step < 32 || step % 32 == 0);
}

class GradientReducer {
 public:
  // op: sum or average. Without a compressor, gradients travel as they are. From here on, only the reducer
  // uses `communicator` and `compressor`, on the thread that reduction_queue.h describes. What is referred to
  // outlives this object.
  GradientReducer(Communicator& communicator, BucketPlan plan, ReduceOp op, Timeline& timeline,
                  Compressor* compressor = nullptr);
  // Waits for a collective that is running; one that its peers never enter ends with the job.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  const BucketPlan& plan() const { return plan_; }
  std::byte* data(std::size_t tensor);  // not between mark_ready(tensor) and finish()
  std::size_t bucket_bytes() const;     // memory of all buckets
  // That this rank gave to collectives since the start; not between mark_ready() and finish().
  std::size_t sent_bytes() const { return compressor_.sent_bytes() + started_bytes_; }

  // This rank's gradient of the tensor is complete. From any thread; once a tensor and step.
  void mark_ready(std::size_t tensor);
  // Sends off what is left: gradients never marked take part as zeros. Calls `reduced` for each bucket, in
  // order, as soon as it is reduced, while those behind it still are; returns when all are. Throws what the
  // reduction threw. From the training thread.
  void finish(const std::function<void(std::size_t bucket)>& reduced = {});
  // Once its bucket is reduced, until the next mark_ready(): whether any rank had this gradient.
  bool present(std::size_t tensor) const;
  // The order in which this rank's gradients came in the first step, by tensor, with those that did not come
  // at the end; empty before that step's finish().
  std::span<const std::size_t> first_order() const;
  // For stall reports (CollectiveRegistry::Explain): the tensors of "bucket 3", or of the next bucket for "",
  // and which of them this rank has not produced in this step. From any thread; never waits.
  std::optional<CollectiveRegistry::Meaning> explain(std::string_view collective) const;

 private:
  struct State {
    std::string name;
    NameId ready;  // in the timeline
    Buffer memory;
    std::size_t missing = 0;  // gradients not yet marked in this step
  };
  void push_full_buckets();
  void reduce(std::size_t bucket);
  void start(std::size_t bucket);
  void set_flag(std::size_t tensor, bool present);
  void note(std::size_t tensor);

  Communicator& communicator_;
  const BucketPlan plan_;
  const ReduceOp op_;
  Timeline& timeline_;
  std::vector<NameId> gradient_names_;  // by tensor, in the timeline
  PlainCompressor plain_;
  Compressor& compressor_;
  std::vector<State> buckets_;
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // tensor → (bucket, slot)
  std::vector<char> marked_;

  mutable std::mutex mutex_;  // backward may run hooks on several threads
  std::size_t pushed_ = 0;    // buckets of this step that the queue has
  std::vector<std::size_t> first_order_;
  bool first_step_ = true;
  std::size_t started_bytes_ = 0;
  std::unique_ptr<ReductionQueue> queue_;  // uses all of the above, so it goes first
};

}  // namespace farandole
