// The arithmetic of the updates, for single numbers and for vectors of them. A file that uses it must be
// compiled without contraction of products and sums, so that all round alike.
// Thread safety: any thread may call this at any time.
//
// All functions are always inlined, for the reason in vector_kernels.h.
#pragma once

namespace farandole {

// What a rule multiplies by in one step, rounded to the type of the elements.
template <class T>
struct UpdateTerms {
  T factor = 1, divisor = 1;  // of the sum of gradients: the quotient is multiplied by the scale
  T scale = 1;
  T lr = 0;                 // adam: divided by the correction of the first moment
  T decay = 0;              // weight decay; adamw: what remains of the parameter
  T kept1 = 0, added1 = 0;  // of momentum buffer or first moment: its part and the gradient's
  T kept2 = 0, added2 = 0;  // of the second moment
  T root_factor = 1;        // adam: the correction of the root of the second moment
  T eps = 0;
  bool decays = false;
  bool first = false;     // sgd: sets the momentum buffer
  bool nesterov = false;  // sgd
  bool uses[3] = {};      // the state's fields
};

template <class T, class Lanes>
[[gnu::always_inline]] inline Lanes gradient_of(const UpdateTerms<T>& terms, Lanes sum) {
  if (terms.factor != 1) sum = sum * terms.factor;
  if (terms.divisor != 1) sum = sum / terms.divisor;
  if (terms.scale != 1) sum = sum * terms.scale;
  return sum;
}

// Each rule changes parameter and state with the gradient. `Root::of` returns square roots. The formulas are
// those of torch/csrc/api/src/optim.

struct SgdRule {
  template <class Root, class T, class Lanes>
  [[gnu::always_inline]] static void apply(const UpdateTerms<T>& terms, Lanes gradient, Lanes& parameter,
                                           Lanes* state) {
    if (terms.decays) gradient = gradient + parameter * terms.decay;
    if (terms.uses[0]) {
      state[0] = terms.first ? gradient : state[0] * terms.kept1 + gradient * terms.added1;
      gradient = terms.nesterov ? gradient + state[0] * terms.kept1 : state[0];
    }
    parameter = parameter - gradient * terms.lr;
  }
};

template <bool decoupled_decay>
struct AdamRule {
  template <class Root, class T, class Lanes>
  [[gnu::always_inline]] static void apply(const UpdateTerms<T>& terms, Lanes gradient, Lanes& parameter,
                                           Lanes* state) {
    if (terms.decays && decoupled_decay) parameter = parameter * terms.decay;
    if (terms.decays && !decoupled_decay) gradient = gradient + parameter * terms.decay;
    state[0] = state[0] * terms.kept1 + gradient * terms.added1;
    state[1] = state[1] * terms.kept2 + gradient * terms.added2 * gradient;
    Lanes second = state[1];
    if (terms.uses[2]) {
      // A NaN in either gives a NaN.
      second = state[2] >= second ? state[2] : second;
      second = state[2] == state[2] ? second : state[2];
      state[2] = second;
    }
    parameter = parameter - state[0] * terms.lr / (Root::of(second) * terms.root_factor + terms.eps);
  }
};

struct RmspropRule {
  template <class Root, class T, class Lanes>
  [[gnu::always_inline]] static void apply(const UpdateTerms<T>& terms, Lanes gradient, Lanes& parameter,
                                           Lanes* state) {
    if (terms.decays) gradient = gradient + parameter * terms.decay;
    state[0] = state[0] * terms.kept2 + gradient * terms.added2 * gradient;
    Lanes variance = state[0];
    if (terms.uses[2]) {
      state[2] = state[2] * terms.kept2 + gradient * terms.added2;
      variance = variance - state[2] * state[2];
    }
    gradient = gradient / (Root::of(variance) + terms.eps);
    if (terms.uses[1]) {
      state[1] = state[1] * terms.kept1 + gradient;
      gradient = state[1];
    }
    parameter = parameter - gradient * terms.lr;
  }
};

}  // namespace farandole
