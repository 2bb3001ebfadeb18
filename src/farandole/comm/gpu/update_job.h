// What each thread does of a fused update: for GPUs and, in tests, for the CPU.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "farandole/comm/kernels/device_code.h"
#include "farandole/comm/kernels/update.h"
#include "farandole/comm/kernels/update_rules.h"

namespace farandole {

// See UpdateSlice. All pointers are to memory of the device, aligned to the elements.
template <class T>
struct UpdateJob {
  UpdateRule::Kind kind;
  UpdateTerms<T> terms;
  const double* scale;     // null: the scale of the terms
  const float* leave_out;  // null, or nothing is changed if it is 1
  T* parameter;
  T* state[update_fields];
  const T* gradients[most_peers];
  std::uint32_t gradients_count;
  T* reduced;
  std::uint64_t count;
};

struct DeviceRoot {
  template <class T>
  FARANDOLE_DEVICE static T of(T square) {
    return std::sqrt(square);
  }
};

// Updates as many elements at once as a thread reads at once, or one.
template <class Rule, class T, std::uint64_t lanes>
struct ElementsUpdate {
  struct alignas(lanes * sizeof(T)) [[gnu::may_alias]] Pack {
    T lane[lanes];
  };

  const UpdateJob<T>& job;
  UpdateTerms<T> terms;

  FARANDOLE_DEVICE static Pack load(const T* from, std::uint64_t pack) {
    return reinterpret_cast<const Pack*>(from)[pack];
  }
  FARANDOLE_DEVICE static void store(const Pack& value, T* to, std::uint64_t pack) {
    reinterpret_cast<Pack*>(to)[pack] = value;
  }

  FARANDOLE_DEVICE void update(std::uint64_t pack) const {
    Pack gradient = load(job.gradients[0], pack);
    for (std::uint32_t k = 1; k < job.gradients_count; ++k) {
      const Pack next = load(job.gradients[k], pack);
      for (std::uint64_t i = 0; i < lanes; ++i) gradient.lane[i] = gradient.lane[i] + next.lane[i];
    }
    Pack parameter = load(job.parameter, pack), state[update_fields] = {};
    for (std::size_t f = 0; f < update_fields; ++f)
      if (terms.uses[f]) state[f] = load(job.state[f], pack);
    for (std::uint64_t i = 0; i < lanes; ++i) {
      gradient.lane[i] = gradient_of(terms, gradient.lane[i]);
      T fields[update_fields];
      for (std::size_t f = 0; f < update_fields; ++f) fields[f] = state[f].lane[i];
      Rule::template apply<DeviceRoot>(terms, gradient.lane[i], parameter.lane[i], fields);
      for (std::size_t f = 0; f < update_fields; ++f) state[f].lane[i] = fields[f];
    }
    if (job.reduced != nullptr) store(gradient, job.reduced, pack);
    store(parameter, job.parameter, pack);
    for (std::size_t f = 0; f < update_fields; ++f)
      if (terms.uses[f]) store(state[f], job.state[f], pack);
  }
};

template <class T>
FARANDOLE_DEVICE bool is_aligned(const UpdateJob<T>& job) {
  auto addresses =
      reinterpret_cast<std::uintptr_t>(job.parameter) | reinterpret_cast<std::uintptr_t>(job.reduced);
  for (std::size_t f = 0; f < update_fields; ++f)
    if (job.terms.uses[f]) addresses |= reinterpret_cast<std::uintptr_t>(job.state[f]);
  for (std::uint32_t k = 0; k < job.gradients_count; ++k)
    addresses |= reinterpret_cast<std::uintptr_t>(job.gradients[k]);
  return addresses % sizeof(DeviceVector) == 0;
}

template <class Rule, class T>
FARANDOLE_DEVICE void update_by(const UpdateJob<T>& job, std::uint64_t thread, std::uint64_t threads) {
  if (job.leave_out != nullptr && *job.leave_out == 1) return;
  constexpr std::uint64_t lanes = sizeof(DeviceVector) / sizeof(T);
  UpdateTerms<T> terms = job.terms;
  if (job.scale != nullptr) terms.scale = static_cast<T>(*job.scale);
  const std::uint64_t packs = is_aligned(job) ? job.count / lanes : 0;
  const ElementsUpdate<Rule, T, lanes> many{job, terms};
  for (std::uint64_t pack = thread; pack < packs; pack += threads) many.update(pack);
  const ElementsUpdate<Rule, T, 1> one{job, terms};
  for (std::uint64_t i = packs * lanes + thread; i < job.count; i += threads) one.update(i);
}

// What thread `thread` of `threads` does.
template <class T>
FARANDOLE_DEVICE void update_elements(const UpdateJob<T>& job, std::uint64_t thread, std::uint64_t threads) {
  switch (job.kind) {
    case UpdateRule::Kind::sgd:
      return update_by<SgdRule>(job, thread, threads);
    case UpdateRule::Kind::adam:
      return update_by<AdamRule<false>>(job, thread, threads);
    case UpdateRule::Kind::adamw:
      return update_by<AdamRule<true>>(job, thread, threads);
    case UpdateRule::Kind::rmsprop:
      return update_by<RmspropRule>(job, thread, threads);
  }
}

}  // namespace farandole
