// The updates as vector kernels. Each file that includes this is compiled for one instruction set; what
// vector_kernels.h says about that applies here, too.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/update_rules.h"
#include "farandole/comm/kernels/vector_kernels.h"

namespace farandole {

// What a step loads, stores and takes roots of: a number behind the last vector, or a vector.
template <class Isa, class T>
struct UpdateNumber {
  using Lanes = T;
  static constexpr std::size_t bytes = sizeof(T);

  [[gnu::always_inline]] static T load(const std::byte* from) {
    T value;
    __builtin_memcpy(&value, from, bytes);
    return value;
  }
  [[gnu::always_inline]] static void store(T value, std::byte* to) { __builtin_memcpy(to, &value, bytes); }
  [[gnu::always_inline]] static T of(T square) {
    if constexpr (sizeof(T) == sizeof(float))
      return __builtin_sqrtf(square);
    else
      return __builtin_sqrt(square);
  }
};

template <class Isa, class T>
struct UpdateVector {
  using Lanes = Vector<Isa, T>;
  static constexpr std::size_t bytes = Isa::bytes;

  [[gnu::always_inline]] static Lanes load(const std::byte* from) { return load_vector<T, bytes>(from); }
  [[gnu::always_inline]] static void store(Lanes value, std::byte* to) { store_vector<T, bytes>(value, to); }
  // The compiler makes it one instruction.
  [[gnu::always_inline]] static Lanes of(Lanes squares) {
    Lanes roots;
    for (std::size_t i = 0; i < bytes / sizeof(T); ++i) roots[i] = UpdateNumber<Isa, T>::of(squares[i]);
    return roots;
  }
};

template <class Isa, class T, class Rule>
struct VectorUpdate {
  const UpdateTerms<T> terms;
  const UpdateBuffers buffers;

  // The processor foresees fewer streams than there are. On Zen 3, AdamW took 1.2 times as long without this.
  [[gnu::always_inline]] void prefetch(std::size_t offset) const {
    constexpr std::size_t ahead = 2048;
    for (std::size_t k = 0; k < buffers.gradients_count; ++k)
      __builtin_prefetch(buffers.gradients[k] + offset + ahead);
    __builtin_prefetch(buffers.parameter + offset + ahead);
    for (int f = 0; f < 3; ++f)
      if (terms.uses[f]) __builtin_prefetch(buffers.state[f] + offset + ahead);
  }

  template <class Unit, int units>
  [[gnu::always_inline]] void step(std::size_t offset) const {
    using Lanes = typename Unit::Lanes;
    Lanes sums[units];
    for (int u = 0; u < units; ++u) sums[u] = Unit::load(buffers.gradients[0] + offset + u * Unit::bytes);
    for (std::size_t k = 1; k < buffers.gradients_count; ++k)
      for (int u = 0; u < units; ++u)
        sums[u] = sums[u] + Unit::load(buffers.gradients[k] + offset + u * Unit::bytes);
    for (int u = 0; u < units; ++u) {
      const std::size_t at = offset + u * Unit::bytes;
      const Lanes gradient = gradient_of(terms, sums[u]);
      if (buffers.reduced != nullptr) Unit::store(gradient, buffers.reduced + at);
      Lanes parameter = Unit::load(buffers.parameter + at);
      Lanes state[3] = {};
      for (int f = 0; f < 3; ++f)
        if (terms.uses[f]) state[f] = Unit::load(buffers.state[f] + at);
      Rule::template apply<Unit>(terms, gradient, parameter, state);
      Unit::store(parameter, buffers.parameter + at);
      for (int f = 0; f < 3; ++f)
        if (terms.uses[f]) Unit::store(state[f], buffers.state[f] + at);
    }
  }
};

template <class Isa, class T, class Rule>
void update_any(const UpdateTerms<T>& terms, const UpdateBuffers& buffers) {
  constexpr std::size_t line = 64;
  constexpr int at_once = line / Isa::bytes < 2 ? 2 : line / Isa::bytes;
  // Copies, because stores through std::byte could change what is in the caller's memory.
  const VectorUpdate<Isa, T, Rule> update{terms, buffers};
  const std::size_t bytes = buffers.count * sizeof(T);
  std::size_t offset = 0;
  for (; offset + at_once * Isa::bytes <= bytes; offset += at_once * Isa::bytes) {
    for (std::size_t ahead = 0; ahead < at_once * Isa::bytes; ahead += line) update.prefetch(offset + ahead);
    update.template step<UpdateVector<Isa, T>, at_once>(offset);
  }
  for (; offset + Isa::bytes <= bytes; offset += Isa::bytes)
    update.template step<UpdateVector<Isa, T>, 1>(offset);
  for (; offset < bytes; offset += sizeof(T)) update.template step<UpdateNumber<Isa, T>, 1>(offset);
}

template <class Isa, class T>
constexpr void set_updates(UpdateKernel<T> (&kernels)[KernelSet::rules]) {
  kernels[static_cast<int>(UpdateRule::Kind::sgd)] = update_any<Isa, T, SgdRule>;
  kernels[static_cast<int>(UpdateRule::Kind::adam)] = update_any<Isa, T, AdamRule<false>>;
  kernels[static_cast<int>(UpdateRule::Kind::adamw)] = update_any<Isa, T, AdamRule<true>>;
  kernels[static_cast<int>(UpdateRule::Kind::rmsprop)] = update_any<Isa, T, RmspropRule>;
}

// All kernels of an instruction set.
template <class Isa>
constexpr KernelSet make_kernels(const char* instructions) {
  KernelSet set = make_kernel_set<Isa>(instructions);
  set_updates<Isa>(set.update_float32);
  set_updates<Isa>(set.update_float64);
  return set;
}

}  // namespace farandole
