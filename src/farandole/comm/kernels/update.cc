#include "farandole/comm/kernels/update.h"

#include <cmath>

#include "farandole/base/error.h"
#include "farandole/comm/kernels/kernel_set.h"

namespace farandole {
namespace {

template <class T>
UpdateTerms<T> terms_of(const UpdateRule& rule, const UpdateSlice& slice) {
  const bool sgd = rule.kind == UpdateRule::Kind::sgd, rmsprop = rule.kind == UpdateRule::Kind::rmsprop;
  UpdateTerms<T> terms;
  const auto set = [](T& term, double value) { term = static_cast<T>(value); };
  // The reciprocals of powers of two are exact, and a product takes less time than a quotient.
  int exponent = 0;
  if (std::frexp(slice.divisor, &exponent) == 0.5)
    set(terms.factor, 1 / slice.divisor);
  else
    set(terms.divisor, slice.divisor);
  set(terms.scale, slice.gradient_scale);
  set(terms.lr, rule.lr);
  set(terms.decay, rule.weight_decay);
  set(terms.eps, rule.eps);
  terms.decays = rule.weight_decay != 0;
  terms.first = slice.step == 1;
  terms.nesterov = rule.nesterov;
  for (std::size_t f = 0; f < update_fields; ++f) terms.uses[f] = rule.uses(f);
  if (sgd || rmsprop) {
    set(terms.kept1, rule.momentum);
    set(terms.added1, 1 - rule.dampening);
    set(terms.kept2, rule.alpha);
    set(terms.added2, 1 - rule.alpha);
    return terms;
  }
  const auto step = static_cast<double>(slice.step);
  set(terms.lr, rule.lr / (1 - std::pow(rule.beta1, step)));
  set(terms.root_factor, 1 / std::sqrt(1 - std::pow(rule.beta2, step)));
  set(terms.kept1, rule.beta1);
  set(terms.added1, 1 - rule.beta1);
  set(terms.kept2, rule.beta2);
  set(terms.added2, 1 - rule.beta2);
  if (rule.kind == UpdateRule::Kind::adamw) set(terms.decay, 1 - rule.lr * rule.weight_decay);
  return terms;
}

template <class T>
void update_elements(const UpdateRule& rule, const UpdateSlice& slice, const UpdateKernel<T>* kernels) {
  UpdateBuffers buffers{static_cast<std::byte*>(slice.parameter),
                        {},
                        reinterpret_cast<const std::byte* const*>(slice.gradients.data()),
                        slice.gradients.size(),
                        static_cast<std::byte*>(slice.reduced),
                        slice.count};
  for (std::size_t f = 0; f < update_fields; ++f) buffers.state[f] = static_cast<std::byte*>(slice.state[f]);
  kernels[static_cast<std::size_t>(rule.kind)](terms_of<T>(rule, slice), buffers);
}

}  // namespace

bool UpdateRule::uses(std::size_t field) const {
  switch (kind) {
    case Kind::sgd:
      return field == 0 && momentum != 0;
    case Kind::adam:
    case Kind::adamw:
      return field < 2 || amsgrad;
    case Kind::rmsprop:
      return field == 0 || (field == 1 ? momentum > 0 : centered);
  }
  return false;
}

void update(const UpdateRule& rule, const UpdateSlice& slice) {
  update(rule, slice, *kernel_sets().front());
}

void update(const UpdateRule& rule, const UpdateSlice& slice, const KernelSet& kernels) {
  switch (slice.dtype) {
    case DType::float32:
      return update_elements<float>(rule, slice, kernels.update_float32);
    case DType::float64:
      return update_elements<double>(rule, slice, kernels.update_float64);
    default:
      throw UserError("only float32 and float64 have fused updates");
  }
}

}  // namespace farandole
