// Functions of Python on numbers, with which a graph computes sizes.
// Thread safety: any thread may call this at any time.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <functional>

#include "farandole/estimator/exported/operation.h"

namespace farandole {
namespace {

using Number = c10::IValue;  // An int, a double or a bool.

double real(const Number& x) {
  return x.isDouble() ? x.toDouble()
         : x.isBool() ? static_cast<double>(x.toBool())
                      : static_cast<double>(x.toInt());
}

std::int64_t whole(const Number& x) {
  return x.isBool() ? static_cast<std::int64_t>(x.toBool()) : x.toInt();
}

// Refuses what does not fit into 64 bits.
std::int64_t sum(std::int64_t x, std::int64_t y) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(x, y, &result)) throw std::runtime_error("a size is too large");
  return result;
}

std::int64_t difference(std::int64_t x, std::int64_t y) {
  std::int64_t result = 0;
  if (__builtin_sub_overflow(x, y, &result)) throw std::runtime_error("a size is too large");
  return result;
}

std::int64_t product(std::int64_t x, std::int64_t y) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(x, y, &result)) throw std::runtime_error("a size is too large");
  return result;
}

template <class Real, class Whole>
Number either(const Number& a, const Number& b, Real of_reals, Whole of_wholes) {
  if (a.isDouble() || b.isDouble()) return of_reals(real(a), real(b));
  return of_wholes(whole(a), whole(b));
}

Number add(const Number& a, const Number& b) {
  return either(a, b, std::plus<double>(), sum);
}

Number subtract(const Number& a, const Number& b) {
  return either(a, b, std::minus<double>(), difference);
}

Number multiply(const Number& a, const Number& b) {
  return either(a, b, std::multiplies<double>(), product);
}

// Rounds down, as Python does.
std::int64_t floor_quotient(std::int64_t x, std::int64_t y) {
  if (y == 0) throw std::runtime_error("a size is divided by 0");
  if (y == -1) return difference(0, x);
  return x / y - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
}

Number floor_divide(const Number& a, const Number& b) {
  return either(
      a, b, [](double x, double y) { return std::floor(x / y); }, floor_quotient);
}

Number modulo(const Number& a, const Number& b) {
  return either(
      a, b, [](double x, double y) { return x - y * std::floor(x / y); },
      [](std::int64_t x, std::int64_t y) {
        if (y == 0) throw std::runtime_error("a size is divided by 0");
        const auto rest = y == -1 ? 0 : x % y;
        return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
      });
}

Number power(const Number& a, const Number& b) {
  if (a.isDouble() || b.isDouble() || whole(b) < 0) return std::pow(real(a), real(b));
  std::int64_t result = 1, base = whole(a);
  for (auto exponent = whole(b); exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = product(result, base);
    if (exponent > 1) base = product(base, base);
  }
  return result;
}

template <class Compare>
Number compare(const Number& a, const Number& b, Compare of) {
  if (a.isDouble() || b.isDouble()) return of(real(a), real(b));
  return of(whole(a), whole(b));
}

Number truncated(const Number& a) {
  if (!a.isDouble()) return whole(a);
  const double value = std::trunc(a.toDouble());
  constexpr double limit = 9223372036854775808.0;  // 2^63
  if (!(value >= -limit && value < limit)) throw std::runtime_error("a size is too large");
  return static_cast<std::int64_t>(value);
}

template <class Operate>
Number of_bits(const Number& a, const Number& b, Operate of) {
  if (a.isBool() && b.isBool()) return of(a.toBool(), b.toBool()) != 0;
  return static_cast<std::int64_t>(of(whole(a), whole(b)));
}

Number shift(const Number& a, const Number& b, bool left) {
  const auto bits = whole(b);
  if (bits < 0 || bits > 62) throw std::runtime_error("a size is shifted too far");
  return left ? Number(product(whole(a), std::int64_t{1} << bits)) : Number(whole(a) >> bits);
}

struct SizeFunction {
  const char* name;
  std::size_t arguments;
  Number (*of)(const Number* x);
};

constexpr std::array size_functions = {
    SizeFunction{"_operator.add", 2, [](const Number* x) { return add(x[0], x[1]); }},
    SizeFunction{"_operator.sub", 2, [](const Number* x) { return subtract(x[0], x[1]); }},
    SizeFunction{"_operator.mul", 2, [](const Number* x) { return multiply(x[0], x[1]); }},
    SizeFunction{"_operator.floordiv", 2, [](const Number* x) { return floor_divide(x[0], x[1]); }},
    SizeFunction{"_operator.truediv", 2, [](const Number* x) { return Number(real(x[0]) / real(x[1])); }},
    SizeFunction{"_operator.mod", 2, [](const Number* x) { return modulo(x[0], x[1]); }},
    SizeFunction{"_operator.pow", 2, [](const Number* x) { return power(x[0], x[1]); }},
    SizeFunction{"_operator.neg", 1, [](const Number* x) { return subtract(std::int64_t{0}, x[0]); }},
    SizeFunction{"_operator.pos", 1, [](const Number* x) { return x[0]; }},
    SizeFunction{"_operator.eq", 2, [](const Number* x) { return compare(x[0], x[1], std::equal_to<>()); }},
    SizeFunction{"_operator.ne", 2,
                 [](const Number* x) { return compare(x[0], x[1], std::not_equal_to<>()); }},
    SizeFunction{"_operator.le", 2, [](const Number* x) { return compare(x[0], x[1], std::less_equal<>()); }},
    SizeFunction{"_operator.ge", 2,
                 [](const Number* x) { return compare(x[0], x[1], std::greater_equal<>()); }},
    SizeFunction{"_operator.lt", 2, [](const Number* x) { return compare(x[0], x[1], std::less<>()); }},
    SizeFunction{"_operator.gt", 2, [](const Number* x) { return compare(x[0], x[1], std::greater<>()); }},
    SizeFunction{"_operator.and_", 2, [](const Number* x) { return of_bits(x[0], x[1], std::bit_and<>()); }},
    SizeFunction{"_operator.or_", 2, [](const Number* x) { return of_bits(x[0], x[1], std::bit_or<>()); }},
    SizeFunction{"_operator.lshift", 2, [](const Number* x) { return shift(x[0], x[1], true); }},
    SizeFunction{"_operator.rshift", 2, [](const Number* x) { return shift(x[0], x[1], false); }},
    SizeFunction{"math.trunc", 1, [](const Number* x) { return truncated(x[0]); }},
    SizeFunction{"torch.sym_int", 1, [](const Number* x) { return truncated(x[0]); }},
    SizeFunction{"torch.sym_float", 1, [](const Number* x) { return Number(real(x[0])); }},
    SizeFunction{"torch.sym_not", 1, [](const Number* x) { return Number(!x[0].toBool()); }},
    SizeFunction{"torch.sym_ite", 3, [](const Number* x) { return x[0].toBool() ? x[1] : x[2]; }},
    SizeFunction{"torch.sym_max", 2, [](const Number* x) { return real(x[0]) < real(x[1]) ? x[1] : x[0]; }},
    SizeFunction{"torch.sym_min", 2, [](const Number* x) { return real(x[1]) < real(x[0]) ? x[1] : x[0]; }},
    SizeFunction{"torch.sym_sqrt", 1, [](const Number* x) { return Number(std::sqrt(real(x[0]))); }},
};

class ArithmeticOperation final : public ExportedOperation {
 public:
  explicit ArithmeticOperation(const SizeFunction& function) : function_(function) {}
  void run(c10::Stack& stack) const override {
    for (const auto& argument : stack)
      if (!argument.isScalar() || argument.isComplexDouble())
        throw std::runtime_error(fmt::format("{} got a {}", function_.name, argument.tagKind()));
    auto result = function_.of(stack.data());
    stack.clear();
    stack.push_back(std::move(result));
  }

 private:
  const SizeFunction& function_;
};

}  // namespace

PreparedNode prepare_arithmetic(const ExportedNode& node, const SlotOf& slot_of, ExportedContext& context) {
  const auto found = std::ranges::find(size_functions, node.target, &SizeFunction::name);
  if (found == size_functions.end()) {
    context.missing.insert(node.target);
    return {};
  }
  if (node.inputs.size() != found->arguments)
    throw std::runtime_error(fmt::format("{} has {} arguments", node.target, node.inputs.size()));
  PreparedNode prepared{std::make_unique<ArithmeticOperation>(*found), {}};
  for (const auto& input : node.inputs)
    prepared.arguments.push_back(prepare_argument(input.value, slot_of, context));
  return prepared;
}

}  // namespace farandole
