// Reduces gradients between ranks: dense gradients in buckets while backward runs,
// sparse gradients after backward.
// Thread safety: call from the training thread only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <torch/types.h>
#include <vector>

#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/fusion/device_reducer.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/fusion/host_reducer.h"
#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/gradients/gradient_buckets.h"
#include "farandole/train/gradients/sparse_gradients.h"
#include "farandole/train/gradients/trained_parameters.h"
#include "farandole/train/session.h"

namespace farandole {

class GradientSynchronizer {
 public:
  // Without `ranks`, gradients stay on this rank. Call use() first. `session` and `options`
  // must outlive this object.
  GradientSynchronizer(Session& session, std::unique_ptr<TracedCommunicator> ranks,
                       const TrainedParameters& dense, const TrainedParameters& sparse,
                       const DistributedOptimizerOptions& options);

  Communicator& ranks() const { return *communicator_; }
  // Moves dense gradients to the memory of these buckets; the gradients become undefined.
  // `sharing`: as HostReducerOptions::sharing. On a device, the gradients can be divided.
  void use(BucketPlan plan, NodeSharing* sharing = nullptr, Divided divided = Divided::no);
  const BucketPlan& plan() const { return reducer_->plan(); }
  // Gradients, indexed by bucket.
  const std::vector<torch::Tensor>& flat() const { return buckets_->flat(); }
  std::span<const std::size_t> first_order() const { return reducer_->first_order(); }

  bool stopping() const { return reducer_->stopping() || sparse_.stopping(); }
  bool pending() const { return buckets_->pending(); }  // Backward ran since the last finish().
  bool overtaken() const { return buckets_->overtaken(); }
  // Waits until all gradients are reduced, on a device without the host. Calls `reduced` for each bucket, in
  // order, as soon as it is reduced.
  // Collective: every rank of the group must call this in the same order.
  void finish(const std::function<void(std::size_t bucket)>& reduced = {});
  // As finish(), but leaves the reduction of the buckets to `filled`, as HostReducer::leave_to_caller().
  // Collective: every rank of the group must call this in the same order.
  void finish_unreduced(const std::function<void(std::size_t bucket)>& filled) {
    host_reducer_->leave_to_caller();
    finish(filled);
  }
  std::span<const std::byte* const> buckets_of_ranks() const { return host_reducer_->buckets_of_ranks(); }
  // False if a gradient of this step that is reduced already is not finite; the same on all ranks. On a
  // device, this is about the step before this one unless await_results() was called; found_nonfinite() is
  // about this one.
  bool finite() const { return !reducer_->first_nonfinite() && !sparse_.first_nonfinite(); }
  // If gradients are divided, each rank gets those of all parts.
  // Collective: every rank of the group must call this in the same order.
  void gather();
  // Call this after finish() if nobody uses the gradients.
  void discard() {
    if (on_device()) device_reducer_->discard();
  }
  // On a device, waits until finite() and stopping() are about this step.
  void await_results() {
    if (on_device()) device_reducer_->await_results();
  }
  // Whether the reductions multiply gradients, and by which factor from now on.
  bool multiplies() const { return on_device() && device_reducer_->can_multiply(); }
  void multiply_by(double factor) { device_reducer_->multiply_by(factor); }
  bool on_device() const { return device_reducer_ != nullptr; }
  BucketDevice* device() const { return device_.get(); }  // Null on the host.
  std::optional<torch::Tensor> found_nonfinite(std::size_t bucket) const {
    return buckets_->found_nonfinite(bucket);
  }
  // Says which gradient it is, and on which ranks. Call it after finish() if finite() is false.
  // Collective: every rank of the group must call this in the same order.
  NonFiniteGradient find_nonfinite();
  // Makes all gradients undefined. If backward ran without finish(), the ranks first finish the reductions
  // that they have begun; returns whether they did.
  bool clear();
  // Copies gradients that users have put in the place of reduced gradients.
  void collect();
  // Norm of all reduced gradients together.
  // Collective, if they are divided: every rank of the group must call this in the same order.
  torch::Tensor norm() const;  // A scalar of float64.
  void scale(const GradientFactor& factor);
  void scale_sparse(double factor);

  std::size_t bucket_bytes() const { return reducer_->bucket_bytes(); }
  // Bytes since the start that were copied into buckets, and that were given to collectives.
  std::size_t packed_bytes() const { return packed_before_ + buckets_->packed_bytes(); }
  std::size_t sent_bytes() const { return sent_before_ + reducer_->sent_bytes() + sparse_.sent_bytes(); }

 private:
  int rank_of_job(std::size_t rank) const;  // Of a rank of the communicator.
  torch::Tensor norm_of_parts() const;
  void reduce_sparse() { sparse_.reduce(options_.average ? communicator_->size : 1); }

  Session& session_;
  const DistributedOptimizerOptions& options_;
  const std::vector<torch::Tensor> parameters_;  // Parameters with dense gradients.
  const std::vector<std::string> sparse_names_;
  // Number of the communicator that reduces dense gradients; no value: this rank is alone.
  std::optional<std::uint16_t> number_;
  const std::unique_ptr<Communicator> communicator_;
  SparseGradients sparse_;
  // On a device, both are there, and device_reducer_ is reducer_; on the host, both are null.
  const std::unique_ptr<BucketDevice> device_;
  DeviceReducer* device_reducer_ = nullptr;
  bool in_parts_ = false;                // Each rank has its part of the reduced gradients.
  HostReducer* host_reducer_ = nullptr;  // reducer_, if there is no device.
  std::unique_ptr<GradientReducer> reducer_;
  CollectiveRegistry::Explanation explanation_;
  std::unique_ptr<GradientBuckets> buckets_;
  std::size_t packed_before_ = 0, sent_before_ = 0;  // Bytes before the last use().
};

}  // namespace farandole
