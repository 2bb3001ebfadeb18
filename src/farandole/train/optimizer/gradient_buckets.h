// The gradients of parameters, which live in the buckets that are reduced. Used by the training thread;
// backward may run its hooks on other threads.
//
// Before backward a parameter has no gradient, so that autograd hands over the memory that it computed the
// gradient in instead of adding it to zeros. Linear (linear.h) computes it in its place in the bucket; other
// modules' gradients a hook copies there at once, while they are in the cache. From then on grad() is the
// view of the bucket, to which further backward passes add.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <torch/torch.h>
#include <vector>

#include "farandole/fusion/gradient_reducer.h"
#include "farandole/train/optimizer/gradient_slot.h"

namespace farandole {

class GradientBuckets {
 public:
  // `parameters` in the order of the reducer's plan. `passes`: gradients of so many backward passes are added
  // up before they are reduced. `reducer` outlives this.
  GradientBuckets(GradientReducer& reducer, std::vector<torch::Tensor> parameters, int passes);
  // Leaves the parameters without gradients: the buckets go with the reducer.
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Waits for the reduction. As soon as a bucket is reduced, its gradients are views of it, or undefined
  // where no rank had one; then `reduced` is called for it, in order.
  void finish(const std::function<void(std::size_t bucket)>& reduced = {});
  // Gradients become undefined. Collective where backward ran without finish(): gradients to be thrown away
  // are thrown away on all ranks.
  // Returns whether it was.
  bool clear();
  bool pending() const;  // backward ran since the last finish()
  // Takes over what users put in the place of a bucket's reduced gradients.
  void collect(std::size_t bucket);

  double norm() const;                                              // of all reduced gradients
  const std::vector<torch::Tensor>& flat() const { return flat_; }  // by bucket
  std::size_t packed_bytes() const { return packed_bytes_; }        // copied into buckets since the start

 private:
  struct Listener {
    std::shared_ptr<torch::autograd::Node> accumulator;
    GradientSlot* slot = nullptr;  // a hook of it
    void stop();
  };
  void listen(std::size_t tensor);
  bool listen_again(std::size_t tensor);
  void arrived(std::size_t tensor);
  void pack(std::size_t tensor);
  void attach(std::size_t bucket);

  GradientReducer& reducer_;
  std::vector<torch::Tensor> parameters_, views_;  // by tensor
  std::vector<torch::Tensor> flat_;
  const int passes_per_step_;
  std::vector<int> passes_;          // backward passes of this step, by tensor
  std::vector<Listener> listeners_;  // by tensor
  std::atomic<std::size_t> packed_bytes_{0};
};

}  // namespace farandole
