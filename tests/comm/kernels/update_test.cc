#include "farandole/comm/kernels/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

using Random = std::mt19937;

double between(Random& random, double low, double high) {
  return std::uniform_real_distribution<>(low, high)(random);
}
bool coin(Random& random) {
  return random() % 2 == 0;
}

UpdateRule random_rule(Random& random) {
  UpdateRule rule{.kind = static_cast<UpdateRule::Kind>(random() % 4),
                  .lr = std::pow(10, between(random, -4, 0))};
  if (coin(random)) rule.weight_decay = between(random, 0, 0.5);
  if (coin(random)) rule.momentum = between(random, 0.1, 1);
  if (coin(random) && rule.kind == UpdateRule::Kind::sgd) rule.dampening = between(random, 0, 1);
  rule.nesterov = coin(random);
  rule.beta1 = between(random, 0, 0.99);
  rule.beta2 = between(random, 0.5, 0.9999);
  rule.amsgrad = coin(random);
  rule.alpha = between(random, 0.5, 0.999);
  rule.centered = coin(random);
  rule.eps = std::pow(10, between(random, -8, -3));
  return rule;
}

struct Element {
  double parameter;
  double state[update_fields];
};

// The rules in double precision, one number at a time, as torch/csrc/api/src/optim has them.
void reference(const UpdateRule& rule, double gradient, std::int64_t step, Element& e) {
  auto& [parameter, state] = e;
  if (rule.kind == UpdateRule::Kind::adamw)
    parameter *= 1 - rule.lr * rule.weight_decay;
  else
    gradient += rule.weight_decay * parameter;
  switch (rule.kind) {
    case UpdateRule::Kind::sgd:
      if (rule.momentum != 0) {
        state[0] = step == 1 ? gradient : rule.momentum * state[0] + (1 - rule.dampening) * gradient;
        gradient = rule.nesterov ? gradient + rule.momentum * state[0] : state[0];
      }
      parameter -= rule.lr * gradient;
      return;
    case UpdateRule::Kind::adam:
    case UpdateRule::Kind::adamw: {
      state[0] = rule.beta1 * state[0] + (1 - rule.beta1) * gradient;
      state[1] = rule.beta2 * state[1] + (1 - rule.beta2) * gradient * gradient;
      if (rule.amsgrad) state[2] = std::max(state[2], state[1]);
      const double corrected = state[rule.amsgrad ? 2 : 1] / (1 - std::pow(rule.beta2, step));
      parameter -= rule.lr / (1 - std::pow(rule.beta1, step)) * state[0] / (std::sqrt(corrected) + rule.eps);
      return;
    }
    case UpdateRule::Kind::rmsprop:
      state[0] = rule.alpha * state[0] + (1 - rule.alpha) * gradient * gradient;
      double variance = state[0];
      if (rule.centered) {
        state[2] = rule.alpha * state[2] + (1 - rule.alpha) * gradient;
        variance -= state[2] * state[2];
      }
      gradient /= std::sqrt(variance) + rule.eps;
      if (rule.momentum > 0) gradient = state[1] = rule.momentum * state[1] + gradient;
      parameter -= rule.lr * gradient;
  }
}

// Buffers at random alignments, with guards before and behind the numbers.
template <class T>
class Column {
 public:
  Column(std::size_t count, Random& random)
      : count_(count), shift_(guard + random() % 64), bytes_(guard + 64 + count * sizeof(T) + guard, mark) {}

  std::byte* at(std::size_t i) { return bytes_.data() + shift_ + i * sizeof(T); }
  T get(std::size_t i) {
    T value;
    std::memcpy(&value, at(i), sizeof value);
    return value;
  }
  void set(std::size_t i, double number) {
    const T value = static_cast<T>(number);
    std::memcpy(at(i), &value, sizeof value);
  }
  std::vector<std::byte> values() { return {at(0), at(count_)}; }
  bool guarded() const {
    const auto is_mark = [](std::byte byte) { return byte == mark; };
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(shift_);
    return std::all_of(bytes_.begin(), begin, is_mark) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(count_ * sizeof(T)), bytes_.end(), is_mark);
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::byte mark{0xa5};
  std::size_t count_, shift_;
  std::vector<std::byte> bytes_;
};

// One slice of random numbers. A copy has the same numbers at other addresses.
template <class T>
struct Numbers {
  Numbers(std::size_t of_count, std::size_t ranks, Random& random)
      : count(of_count), parameter(count, random), reduced(count, random) {
    for (std::size_t f = 0; f < update_fields; ++f) state.emplace_back(count, random);
    for (std::size_t r = 0; r < ranks; ++r) gradients.emplace_back(count, random);
    std::normal_distribution<> normal;
    for (std::size_t i = 0; i < count; ++i) {
      parameter.set(i, normal(random));
      // Second moments are at least the squares of the first, and their largest value is not less.
      const double first = normal(random), second = first * first + between(random, 0.5, 2);
      for (auto& gradient : gradients) gradient.set(i, normal(random));
      state[0].set(i, first);
      state[1].set(i, second);
      state[2].set(i, second * between(random, 0.5, 2));
    }
  }
  void order_for(const UpdateRule& rule) {  // RMSprop has the second moment first.
    if (rule.kind != UpdateRule::Kind::rmsprop) return;
    std::swap(state[0], state[1]);
    for (std::size_t i = 0; i < count; ++i) state[2].set(i, state[1].get(i));
  }
  UpdateSlice slice(std::size_t first, std::size_t end) {
    places.clear();
    for (auto& gradient : gradients) places.push_back(gradient.at(first));
    UpdateSlice result{.dtype = sizeof(T) == 4 ? DType::float32 : DType::float64,
                       .count = end - first,
                       .parameter = parameter.at(first)};
    for (std::size_t f = 0; f < update_fields; ++f) result.state[f] = state[f].at(first);
    result.gradients = places;
    result.reduced = reduced.at(first);
    return result;
  }
  Element element(std::size_t i) {
    Element e{parameter.get(i), {}};
    for (std::size_t f = 0; f < update_fields; ++f) e.state[f] = state[f].get(i);
    return e;
  }
  // All bytes that an update may change.
  std::vector<std::vector<std::byte>> values() {
    std::vector<std::vector<std::byte>> all{parameter.values(), reduced.values()};
    for (auto& column : state) all.push_back(column.values());
    return all;
  }
  bool guarded() const {
    bool all = parameter.guarded() && reduced.guarded();
    for (const auto& column : state) all = all && column.guarded();
    return all;
  }

  std::size_t count;
  Column<T> parameter, reduced;
  std::vector<Column<T>> state, gradients;
  std::vector<const void*> places;
};

std::string text_of(const UpdateRule& rule) {
  return "kind " + std::to_string(static_cast<int>(rule.kind)) + ", lr " + std::to_string(rule.lr) +
         ", decay " + std::to_string(rule.weight_decay) + ", momentum " + std::to_string(rule.momentum) +
         ", nesterov " + std::to_string(rule.nesterov) + ", amsgrad " + std::to_string(rule.amsgrad) +
         ", centered " + std::to_string(rule.centered);
}

template <class T>
void expect_reference(Random& random) {
  const auto rule = random_rule(random);
  SCOPED_TRACE(text_of(rule));
  Numbers<T> numbers(random() % 300, 1 + random() % 5, random);
  numbers.order_for(rule);
  auto slice = numbers.slice(0, numbers.count);
  slice.divisor = static_cast<double>(coin(random) ? slice.gradients.size() : 1);
  slice.gradient_scale = coin(random) ? between(random, 0.1, 3) : 1;
  slice.step = 1 + random() % 20;
  std::vector<Element> expected;
  std::vector<double> gradients;
  for (std::size_t i = 0; i < numbers.count; ++i) {
    double sum = 0;
    for (auto& gradient : numbers.gradients) sum += gradient.get(i);
    gradients.push_back(sum / slice.divisor * slice.gradient_scale);
    expected.push_back(numbers.element(i));
    reference(rule, gradients.back(), slice.step, expected.back());
  }
  update(rule, slice);
  EXPECT_TRUE(numbers.guarded());
  constexpr double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-13;
  for (std::size_t i = 0; i < numbers.count; ++i) {
    const auto found = numbers.element(i);
    const auto near = [&](double a, double b) { return std::abs(a - b) <= tolerance * (1 + std::abs(b)); };
    ASSERT_PRED2(near, numbers.reduced.get(i), gradients[i]) << i;
    ASSERT_PRED2(near, found.parameter, expected[i].parameter) << i;
    for (std::size_t f = 0; f < update_fields; ++f)
      ASSERT_PRED2(near, found.state[f], expected[i].state[f]) << i << ", field " << f;
  }
}

TEST(Update, EqualsTheFormulas) {
  Random random(seed(1));
  for (int round = 0; round < rounds(150, 5000); ++round) {
    expect_reference<float>(random);
    expect_reference<double>(random);
  }
}

// The same numbers in memory at other addresses.
template <class T>
Numbers<T> moved(Numbers<T>& numbers, Random& random) {
  Numbers<T> other(numbers.count, numbers.gradients.size(), random);
  const auto copy = [&](Column<T>& from, Column<T>& to) {
    std::memcpy(to.at(0), from.at(0), numbers.count * sizeof(T));
  };
  copy(numbers.parameter, other.parameter);
  for (std::size_t f = 0; f < update_fields; ++f) copy(numbers.state[f], other.state[f]);
  for (std::size_t r = 0; r < numbers.gradients.size(); ++r) copy(numbers.gradients[r], other.gradients[r]);
  return other;
}

// Numbers of all sizes, and those that are none.
template <class T>
void make_extreme(Numbers<T>& numbers, Random& random) {
  for (int n = 0; n < 20 && numbers.count > 0; ++n) {
    auto& column = numbers.gradients[random() % numbers.gradients.size()];
    constexpr double values[] = {0, -0.0, 1e-42, -1e-30, 1e30, -3e38, INFINITY, NAN};
    column.set(random() % numbers.count, values[random() % std::size(values)]);
  }
}

template <class T>
void expect_same_bits(Random& random) {
  const auto rule = random_rule(random);
  SCOPED_TRACE(text_of(rule));
  Numbers<T> numbers(random() % 400, 1 + random() % 5, random);
  numbers.order_for(rule);
  make_extreme(numbers, random);
  const double divisor = static_cast<double>(coin(random) ? numbers.gradients.size() : 1);
  const double scale = coin(random) ? between(random, 0.1, 3) : 1;
  const auto run = [&](Numbers<T>& of, std::size_t first, std::size_t end, const KernelSet& kernels) {
    auto slice = of.slice(first, end);
    slice.divisor = divisor;
    slice.gradient_scale = scale;
    slice.step = 7;
    update(rule, slice, kernels);
  };
  auto whole = moved(numbers, random);
  run(whole, 0, whole.count, portable_kernels);
  // NaNs have any sign and payload.
  const auto same = [&](Numbers<T>& other) {
    if (whole.values() == other.values()) return true;
    const auto equal = [](T a, T b) { return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b); };
    for (std::size_t i = 0; i < whole.count; ++i) {
      if (!equal(whole.parameter.get(i), other.parameter.get(i)) ||
          !equal(whole.reduced.get(i), other.reduced.get(i)))
        return false;
      for (std::size_t f = 0; f < update_fields; ++f)
        if (!equal(whole.state[f].get(i), other.state[f].get(i))) return false;
    }
    return true;
  };
  for (const auto* set : kernel_sets()) {
    SCOPED_TRACE(set->instructions);
    auto parts = moved(numbers, random);
    for (std::size_t first = 0; first < parts.count;) {
      const std::size_t end = std::min(parts.count, first + random() % 60);
      run(parts, first, end, *set);
      first = end;
    }
    ASSERT_TRUE(parts.guarded());
    ASSERT_TRUE(same(parts));
  }
}

TEST(Update, HasTheSameBitsForEverySplitAlignmentAndInstructionSet) {
  Random random(seed(2));
  for (int round = 0; round < rounds(150, 5000); ++round) {
    expect_same_bits<float>(random);
    expect_same_bits<double>(random);
  }
}

// An allreduce and then an update with its result.
template <class T>
void expect_bits_of_allreduce(ReduceOp op, std::size_t ranks, Random& random) {
  const auto rule = random_rule(random);
  SCOPED_TRACE(text_of(rule) + ", ranks " + std::to_string(ranks));
  Numbers<T> fused(1 + random() % 200, ranks, random);
  auto separate = moved(fused, random);
  const double divisor = op == ReduceOp::average ? static_cast<double>(ranks) : 1;
  auto slice = fused.slice(0, fused.count);
  slice.divisor = divisor;
  update(rule, slice);

  std::vector<const std::byte*> inputs;
  for (auto& gradient : separate.gradients) inputs.push_back(gradient.at(0));
  std::byte* const output = separate.gradients[0].at(0);
  reduce(inputs, {&output, 1}, separate.count, slice.dtype, op);
  slice = separate.slice(0, separate.count);
  slice.gradients = slice.gradients.first(1);
  update(rule, slice);
  EXPECT_EQ(fused.values(), separate.values());
}

TEST(Update, HasTheBitsOfAnAllreduceBefore) {
  Random random(seed(3));
  for (const auto op : {ReduceOp::sum, ReduceOp::average})
    for (std::size_t ranks = 1; ranks <= 9; ++ranks)
      for (int round = 0; round < 5; ++round) {
        expect_bits_of_allreduce<float>(op, ranks, random);
        expect_bits_of_allreduce<double>(op, ranks, random);
      }
}

TEST(Update, StoresTheReducedGradientInPlaceOrNowhere) {
  Random random(seed(4));
  UpdateRule rule{.lr = 0.5};
  Numbers<float> numbers(37, 2, random);
  auto apart = moved(numbers, random), nowhere = moved(numbers, random);
  update(rule, apart.slice(0, 37));
  auto slice = numbers.slice(0, 37);
  slice.reduced = numbers.gradients[1].at(0);
  update(rule, slice);
  EXPECT_EQ(numbers.gradients[1].values(), apart.reduced.values());
  EXPECT_EQ(numbers.parameter.values(), apart.parameter.values());
  const auto before = nowhere.reduced.values();
  slice = nowhere.slice(0, 37);
  slice.reduced = nullptr;
  // SGD without momentum has no state.
  for (auto& field : slice.state) field = nullptr;
  update(rule, slice);
  EXPECT_EQ(nowhere.reduced.values(), before);
  EXPECT_EQ(nowhere.parameter.values(), apart.parameter.values());
}

TEST(Update, RefusesOtherTypes) {
  UpdateSlice slice{.dtype = DType::bfloat16};
  EXPECT_THROW(update({}, slice), UserError);
}

}  // namespace
}  // namespace farandole
