// One pass over the memory that adds the gradients of several ranks and updates parameters and state, as
// torch::optim's SGD, Adam, AdamW and RMSprop do.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "farandole/base/dtype.h"

namespace farandole {

struct KernelSet;

// The options of one parameter group, with the names of torch::optim.
struct UpdateRule {
  enum class Kind : std::uint8_t { sgd, adam, adamw, rmsprop };

  Kind kind = Kind::sgd;
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0, dampening = 0;  // sgd; rmsprop has no dampening
  bool nesterov = false;               // sgd
  double beta1 = 0, beta2 = 0;         // adam, adamw
  bool amsgrad = false;                // adam, adamw
  double alpha = 0;                    // rmsprop
  bool centered = false;               // rmsprop
  double eps = 0;                      // all but sgd

  // Returns whether the rule uses state[field]:
  //   sgd: momentum_buffer
  //   adam, adamw: exp_avg, exp_avg_sq, max_exp_avg_sq
  //   rmsprop: square_avg, momentum_buffer, grad_avg
  bool uses(std::size_t field) const;
};
constexpr std::size_t update_fields = 3;

// Neighbouring elements of one type, which share rule and number of updates.
struct UpdateSlice {
  DType dtype = DType::float32;  // or float64
  std::size_t count = 0;
  void* parameter = nullptr;
  void* state[update_fields] = {};  // ignored where the rule does not use the field
  // Added in this order, as reduce() does; at least one.
  std::span<const void* const> gradients{};
  // The sum is divided by it: the number of ranks, for an average with the bits of reduce().
  double divisor = 1;
  double gradient_scale = 1;  // The quotient is multiplied by it, rounded to the type.
  // Where the gradient is also stored that the rule uses, before weight decay; may be one of `gradients`.
  void* reduced = nullptr;
  std::int64_t step = 1;  // number of updates including this one; sgd sets the momentum buffer in the first
};

// Every element is computed for itself, and products are rounded before they are added. So the bits depend
// neither on alignment nor on how the elements are divided into slices, nor on the processor.
// All buffers have slice.count elements at any alignment, and do not overlap except as said above.
// Throws: UserError if dtype is neither float32 nor float64.
void update(const UpdateRule& rule, const UpdateSlice& slice);
// The same with the kernels of one instruction set.
void update(const UpdateRule& rule, const UpdateSlice& slice, const KernelSet& kernels);

}  // namespace farandole
