#include "farandole/estimator/exported/guards.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace farandole {
namespace {

// Returns a size of an input.
using SizeOf = std::function<std::int64_t(const std::string& input, std::size_t dimension)>;

// Computes an expression while reading it, by recursive descent: sizes, numbers, + - * // %, comparisons,
// and, or, not. Throws: std::runtime_error if there is anything else, or if a number is too large.
class Expression {
 public:
  Expression(std::string_view text, const SizeOf& size_of) : rest_(text), size_of_(size_of) {}

  bool holds() {
    const auto value = disjunction();
    skip_blanks();
    check(rest_.empty());
    return value != 0;
  }

 private:
  static void check(bool good) {
    if (!good) throw std::runtime_error("a condition is not understood");
  }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  bool take(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::int64_t disjunction() {
    auto value = conjunction();
    while (take("or ")) value = static_cast<std::int64_t>((conjunction() != 0) | (value != 0));
    return value;
  }
  std::int64_t conjunction() {
    auto value = negation();
    while (take("and ")) value = static_cast<std::int64_t>((negation() != 0) & (value != 0));
    return value;
  }
  std::int64_t negation() {
    if (!take("not ")) return comparison();
    check(++depth_ < 1000);
    return static_cast<std::int64_t>(negation() == 0);
  }
  std::int64_t comparison() {
    auto left = sum();
    std::optional<bool> holds;
    for (;;) {  // 2 <= x < 10 holds if both comparisons do.
      std::function<bool(std::int64_t, std::int64_t)> compare;
      if (take("<="))
        compare = std::less_equal<>();
      else if (take(">="))
        compare = std::greater_equal<>();
      else if (take("=="))
        compare = std::equal_to<>();
      else if (take("!="))
        compare = std::not_equal_to<>();
      else if (take("<"))
        compare = std::less<>();
      else if (take(">"))
        compare = std::greater<>();
      else
        return holds ? static_cast<std::int64_t>(*holds) : left;
      const auto right = sum();
      holds = compare(left, right) && holds.value_or(true);
      left = right;
    }
  }
  std::int64_t sum() {
    auto value = product();
    for (;;) {
      if (take("+"))
        check(!__builtin_add_overflow(value, product(), &value));
      else if (take("-"))
        check(!__builtin_sub_overflow(value, product(), &value));
      else
        return value;
    }
  }
  std::int64_t product() {
    auto value = operand();
    for (;;) {
      if (take("**") || (!rest_.starts_with("//") && take("/"))) check(false);
      const bool divides = take("//"), takes_rest = !divides && take("%");
      if (!divides && !takes_rest && !take("*")) return value;
      const auto right = operand();
      if (!divides && !takes_rest) {
        check(!__builtin_mul_overflow(value, right, &value));
        continue;
      }
      check(right > 0);  // Then quotients are rounded down, and rests are not negative.
      const auto rest = (value % right + right) % right;
      value = takes_rest ? rest : (value - rest) / right;
    }
  }
  std::int64_t operand() {
    check(++depth_ < 1000);
    if (take("-")) {
      std::int64_t value = 0;
      check(!__builtin_sub_overflow(std::int64_t{0}, operand(), &value));
      return value;
    }
    if (take("(")) {
      const auto value = disjunction();
      check(take(")"));
      return value;
    }
    if (take("L['")) {
      const auto end = rest_.find('\'');
      check(end != rest_.npos);
      const std::string input(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
      check(take("].size()["));
      const auto dimension = number();
      check(take("]"));
      return size_of_(input, static_cast<std::size_t>(dimension));
    }
    return number();
  }
  std::int64_t number() {
    skip_blanks();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    check(error == std::errc() && value >= 0);
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    check(rest_.empty() ||
          (rest_.front() != '.' && std::isalpha(static_cast<unsigned char>(rest_.front())) == 0));
    return value;
  }

  std::string_view rest_;
  const SizeOf& size_of_;
  int depth_ = 0;  // at least that of the recursion
};

}  // namespace

SizeGuards::SizeGuards(const std::vector<std::string>& expressions, const std::vector<std::string>& inputs)
    : expressions_(expressions) {
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs_[inputs[i]] = i;
}

std::string SizeGuards::violated_by(const std::vector<at::Tensor>& inputs) const {
  if (expressions_.empty()) return "";
  std::vector<std::int64_t> sizes;
  for (const auto& input : inputs) sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
  if (held_.contains(sizes)) return "";
  const SizeOf size_of = [&](const std::string& name, std::size_t dimension) {
    const auto found = inputs_.find(name);
    if (found == inputs_.end() || dimension >= inputs.at(found->second).sizes().size())
      throw std::runtime_error("a condition is on no size of an input");
    return inputs.at(found->second).sizes()[dimension];
  };
  for (const auto& expression : expressions_) {
    try {
      if (!Expression(expression, size_of).holds()) return expression;
    } catch (const std::runtime_error&) {  // Another kind of condition, which is not checked.
    }
  }
  held_.insert(std::move(sizes));
  return "";
}

}  // namespace farandole
