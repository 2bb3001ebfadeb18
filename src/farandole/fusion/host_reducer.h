// Reduces gradients in memory of the host, through a communicator.
// Thread safety: call from the training thread only. Functions say where other threads may call them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/node_sharing.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/fusion/half_compressor.h"
#include "farandole/fusion/reduction_queue.h"

namespace farandole {

// Who reduces if the transport has a non-blocking allreduce and nothing is compressed: the thread that calls
// the reducer's functions, or a thread of the reducer. The caller must not block in anything else that waits
// for another rank between its first gradient and finish(), because that rank may wait in finish().
enum class ReducedBy { caller, thread };

struct HostReducerOptions {
  std::optional<DType> compressed{};  // float16 or bfloat16: gradients are sent in this type
  std::function<bool()> stop_requested{};
  ReducedBy reduced_by = ReducedBy::caller;
  // False saves reading each gradient once more; first_nonfinite() and first_nonfinite_here()
  // are then unknown.
  bool finds_nonfinite = true;
  // The communicator's, if finish() may leave the reduction to its caller (leave_to_caller()). Then no bucket
  // is reduced before finish(). Not with compression or a thread.
  NodeSharing* sharing = nullptr;
};

// What reductions make infinite: with compression, first_nonfinite() finds it in the same step. Sums that
// overflow without compression are found as gradients of the next step. During finish(), only buckets up to
// the current one are known.
class HostReducer final : public GradientReducer {
 public:
  // `op` is sum or average. From now on only the reducer uses `communicator` and `stop_requested`, on the
  // thread described in reduction_queue.h. All references must outlive this object.
  // Throws: UserError if a tensor has a type that gradients cannot have.
  HostReducer(Communicator& communicator, BucketPlan plan, ReduceOp op, Timeline& timeline,
              HostReducerOptions options = {});
  // If a thread runs the collectives, waits for one that is running. If its peers never enter it, it ends
  // with the job. Otherwise an allreduce that is under way is abandoned.
  ~HostReducer() override;

  // Thread safety: any thread may call this at any time.
  void mark_ready(std::size_t tensor) override;

  // The next finish() reduces nothing. Instead, `reduced` is called for each bucket when all ranks have
  // filled it and have come to finish(), and may read buckets_of_ranks() until it returns. Afterwards all
  // ranks must come to a meet() before they change gradients. Flags are known as after a reduction.
  void leave_to_caller() { left_to_caller_ = true; }
  // The memory of the bucket on all ranks, by rank.
  std::span<const std::byte* const> buckets_of_ranks() const { return buckets_of_ranks_; }

 private:
  std::byte* payload(std::size_t bucket) const override;
  std::byte* flags(std::size_t bucket) const override;
  void set_zero(std::size_t tensor) override;
  void push(std::size_t bucket) override;
  void await(std::size_t bucket) override;
  void end_step() override;
  void start(std::size_t bucket);
  void reduce(std::size_t bucket);
  void borrow(std::size_t bucket);
  void look_for_nonfinite(std::size_t bucket);

  Communicator& communicator_;
  const ReduceOp op_;
  const bool finds_nonfinite_;
  std::optional<HalfCompressor> compressor_;
  NodeSharing* const sharing_;
  bool left_to_caller_ = false;
  std::span<const std::byte* const> buckets_of_ranks_;
  // The flags of all ranks together, of a bucket that is left to the caller; empty for other buckets.
  std::vector<std::byte> flags_of_ranks_;
  std::optional<std::size_t> borrowed_;    // the bucket to which they belong
  std::vector<Buffer> memory_;             // by bucket
  std::unique_ptr<ReductionQueue> queue_;  // uses all members above, so it is destroyed first
};

}  // namespace farandole
