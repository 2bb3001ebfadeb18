// Parameters, and the state that a fused rule keeps for them, in the layout of the gradients: one flat tensor
// per bucket. The parameters and the tensors in torch::optim's state are views of it.
// Thread safety: call from the training thread only.
//
// One call of a fused kernel updates a bucket, or a run of its slots if slots differ in options or number of
// updates, or have no gradient. torch::optim still owns options, counters and state: users, broadcasts and
// checkpoints read valid values there, and values that they replace are used in the next update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <torch/types.h>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/train/gradients/gradient_buckets.h"
#include "farandole/train/update/optimizer_rules.h"

namespace farandole {

// What an update takes for the gradients of a bucket.
struct BucketGradients {
  GradientFactor factor = 1.0;  // They are multiplied by it.
  // Not empty: instead of gradients that are reduced already, the sum of these whole buckets in memory of the
  // host, by rank, divided by `divisor`. The sum is not stored.
  std::span<const std::byte* const> by_rank{};
  double divisor = 1;
};

class FlatBuckets {
 public:
  // Elements [first, last) of a bucket.
  struct Part {
    std::size_t first, last;
  };
  // Vectors are indexed by bucket. What `states` points to must outlive the object that uses this.
  struct Memory {
    std::vector<torch::Tensor> gradients{}, parameters{};
    std::vector<torch::Tensor> seen{};  // By this rank, of the parameters: the same memory, or views of it.
    std::vector<Part> parts{};          // What this rank updates.
    OptimizerStates* states = nullptr;  // With the tensors of the state.
    // False: flat state has the elements of the parts only, and that of a slot has one dimension.
    bool whole_state = true;
    bool zeroed = false;  // State that no tensor has used is zero.
  };
  // Gradients and parameters of `rules` in new memory, all of which this rank updates.
  static Memory whole(OptimizerRules& rules, const BucketPlan& plan, std::vector<torch::Tensor> gradients);

  // `rules` must outlive this object. When it is destroyed, the parameters keep their values and the memory.
  FlatBuckets(OptimizerRules& rules, BucketPlan plan, Memory memory);

  // Gives a parameter the memory of its place, with its own values, unless it has it. Modules replace the
  // memory of a parameter when they are loaded or converted.
  void move_into_place(std::size_t tensor);
  void move_all_into_place();
  // Multiplies the gradients of the part by the factor. Then updates the parameters of the part that a fused
  // kernel can update and whose grad() is defined; grad() must be the view of the bucket. With `leave_out`, a
  // scalar of float32 on the device, the parameters only change if it is 0; updates are counted in any case.
  void update(std::size_t bucket, const BucketGradients& gradients,
              const std::optional<torch::Tensor>& leave_out);
  // Returns all parameters as one tensor per bucket, for writing.
  std::vector<torch::Tensor>& writable_parameters();

  OptimizerRules& rules() const { return rules_; }
  const BucketPlan& plan() const { return plan_; }
  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  const std::vector<torch::Tensor>& places() const { return places_; }  // Of parameters; indexed by tensor.
  // The part of a slot, in elements of the bucket. It may be empty.
  Part part_of(std::size_t bucket, const BucketSlot& slot) const;
  // Flat tensors of the state; a field is created when it is first needed.
  StateFields& state(std::size_t bucket) { return flat_state_[bucket]; }
  // Where the state of a slot belongs.
  StateFields state_places(std::size_t bucket, const BucketSlot& slot, const UpdateRule& rule);
  std::size_t state_bytes() const;  // State that fused kernels need for the parts.

 private:
  struct Run;
  struct Piece;
  std::vector<Run> runs(std::size_t bucket);
  Piece piece_of(std::size_t bucket, const Run& run) const;
  static void update_on_host(const Piece& run, const UpdateRule& rule, const BucketGradients& gradients);
  static void update_on_device(const Piece& run, const UpdateRule& rule,
                               const std::optional<torch::Tensor>& divisor,
                               const std::optional<torch::Tensor>& leave_out);
  static void update_rmsprop(const Piece& run, const UpdateRule& rule,
                             const std::optional<torch::Tensor>& divisor,
                             const std::optional<torch::Tensor>& leave_out);

  OptimizerRules& rules_;
  const BucketPlan plan_;
  Memory memory_;
  std::vector<torch::Tensor> places_;     // Indexed by tensor; views of memory_.seen.
  std::vector<StateFields> flat_state_;   // Indexed by bucket.
  std::vector<StateFields> slot_states_;  // Indexed by tensor; views of the flat state.
};

}  // namespace farandole
