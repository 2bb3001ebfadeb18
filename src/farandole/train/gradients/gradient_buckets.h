// Keeps the gradients of parameters in the buckets in which they are reduced.
// Thread safety: call from the training thread only. Backward may run its hooks on other threads.
//
// Before backward a parameter has no gradient. Therefore autograd stores the memory in which it has computed
// the gradient, instead of adding the gradient to zeros. Linear and Embedding (bucket_layers.cc) compute the
// gradient directly in the bucket. For other modules, a hook immediately copies the gradient there, while it
// is in the cache. From then on grad() is the view of the bucket, and further backward passes add to it. On a
// device, the gradients of a bucket stay where they are until they are copied together, and grad() is the
// view from finish() on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <torch/types.h>
#include <variant>
#include <vector>

#include "farandole/fusion/device_reducer.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/train/layers/gradient_slot.h"

namespace farandole {

// The message of a UserError if GradientBuckets::overtaken().
extern const char* const of_inner_step;

// What gradients are multiplied by: a number, or a scalar of float64 that only the device knows.
using GradientFactor = std::variant<double, torch::Tensor>;
void multiply(torch::Tensor gradients, const GradientFactor& factor);

// Appends the norms of short rows of a flat tensor, in float64, because float32 is not accurate enough for
// the whole sum.
void append_norms(const torch::Tensor& flat, std::vector<torch::Tensor>& norms);

class GradientBuckets {
 public:
  // `parameters` are in the order of the reducer's plan. `passes`: number of backward passes whose gradients
  // are added before they are reduced. `device` is the reducer if it reduces in memory of a device, else
  // null. `reducer` must outlive this object.
  GradientBuckets(GradientReducer& reducer, DeviceReducer* device, std::vector<torch::Tensor> parameters,
                  int passes);
  // The parameters have no gradients afterwards, because the buckets belong to the reducer.
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Waits for the reduction. As soon as a bucket is reduced, its gradients become views of it, or undefined
  // if no rank had a gradient; then `reduced` is called for it, in order.
  void finish(const std::function<void(std::size_t bucket)>& reduced = {});
  // Makes all gradients undefined. Returns whether backward ran without finish(). In this case the call
  // communicates, and all ranks must discard their gradients.
  // Collective: every rank of the group must call this in the same order.
  bool clear();
  bool pending() const;  // Backward ran since the last finish().
  // Since then, code outside of this class has changed a parameter in place.
  bool overtaken() const;
  // Copies gradients that users have put in the place of a bucket's reduced gradients.
  void collect(std::size_t bucket);

  // DeviceReducer::found_nonfinite() as a scalar of float32; no value: the host knows.
  std::optional<torch::Tensor> found_nonfinite(std::size_t bucket) const;

  torch::Tensor norm() const;  // Norm of all reduced gradients; a scalar of float64.
  const std::vector<torch::Tensor>& flat() const { return flat_; }  // Indexed by bucket.
  std::size_t packed_bytes() const { return packed_bytes_; }  // Bytes copied into buckets since the start.

 private:
  struct Listener {
    std::shared_ptr<torch::autograd::Node> accumulator;
    GradientSlot* slot = nullptr;  // A hook of the accumulator.
    void stop();
  };
  void listen(std::size_t tensor);
  bool listen_again(std::size_t tensor);
  void arrived(std::size_t tensor);
  void pack(std::size_t tensor);
  void attach(std::size_t bucket);
  void hand_over(std::size_t tensor);
  bool like_its_view(const torch::Tensor& gradient, std::size_t tensor) const;

  GradientReducer& reducer_;
  DeviceReducer* const device_;
  std::vector<torch::Tensor> parameters_, views_;  // Indexed by tensor.
  std::vector<torch::Tensor> flat_;
  std::vector<torch::Tensor> packed_later_;  // Indexed by tensor; what the reducer copies.
  const int passes_per_step_;
  std::vector<int> passes_;  // Backward passes of this step, indexed by tensor.
  // Indexed by tensor: a mark of the parameter when it got its first gradient of this step.
  std::vector<std::size_t> marks_;
  std::vector<Listener> listeners_;  // Indexed by tensor.
  std::atomic<std::size_t> packed_bytes_{0};
};

}  // namespace farandole
