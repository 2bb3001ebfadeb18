#include "farandole/analyzer/report/formatting.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <initializer_list>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

}  // namespace

std::string Style::wrap(std::string_view code, std::string_view text) const {
  if (!colour_) return std::string(text);
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string shortened(std::string_view text, std::size_t columns) {
  auto result = printable(text);
  if (width_of(result) <= columns) return result;
  std::size_t end = 0;
  for (std::size_t left = columns; end < result.size(); ++end)
    if (begins_character(result[end]) && left-- <= 1) break;
  return result.substr(0, end) + "…";
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const auto space = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    const bool first = column == indent;
    if (!first && column + 1 + width_of(word) > columns) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      result += ' ';
      ++column;
    }
    result += shortened(word, columns);
    column += width_of(word);
  }
  return result;
}

std::string TextTable::line(const std::vector<std::string>& cells,
                            const std::vector<std::size_t>& widths) const {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string gap(widths[i] - width_of(cells[i]), ' ');
    text += "  " + (i < left_ ? cells[i] + gap : gap + cells[i]);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string TextTable::text(const Style& style) const {
  std::vector<std::size_t> widths;
  for (const auto& cell : header_) widths.push_back(width_of(cell));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string result = style.dim(line(header_, widths)) + "\n";
  for (const auto& row : rows_) result += line(row, widths) + "\n";
  return result;
}

namespace {

bool is_of_identifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Types, and templates around what is wanted.
bool says_nothing(std::string_view identifier) {
  static constexpr std::array<std::string_view, 28> words = {"char",
                                                             "bool",
                                                             "void",
                                                             "unsigned",
                                                             "signed",
                                                             "const",
                                                             "true",
                                                             "false",
                                                             "half",
                                                             "__half",
                                                             "BFloat16",
                                                             "__nv_bfloat16",
                                                             "Half",
                                                             "Array",
                                                             "array",
                                                             "complex",
                                                             "ReduceOp",
                                                             "lambda",
                                                             "operator",
                                                             "anonymous",
                                                             "namespace",
                                                             "OpaqueType",
                                                             "gpu_kernel_impl",
                                                             "gpu_kernel_impl_nocast",
                                                             "BinaryFunctor",
                                                             "TensorIteratorBase",
                                                             "decltype",
                                                             "nullptr"};
  const auto is_type = [&](std::string_view type) {  // Also float4 and the like.
    return identifier.starts_with(type) && identifier.size() <= type.size() + 1;
  };
  return identifier.size() < 4 || std::isdigit(static_cast<unsigned char>(identifier.front())) != 0 ||
         is_type("float") || is_type("double") || is_type("short") || is_type("long") ||
         identifier.ends_with("_t") || std::find(words.begin(), words.end(), identifier) != words.end();
}

// The first identifier of the arguments of a template that is no namespace and says something.
std::string_view telling_argument(std::string_view arguments) {
  for (std::size_t at = 0; at < arguments.size();) {
    if (!is_of_identifier(arguments[at])) {
      ++at;
      continue;
    }
    auto end = at;
    while (end < arguments.size() && is_of_identifier(arguments[end])) ++end;
    const auto identifier = arguments.substr(at, end - at);
    if (!arguments.substr(end).starts_with("::") && !says_nothing(identifier)) return identifier;
    at = end;
    // "kernel_cuda(…)::{lambda()#1}" names the function that contains the lambda.
    if (arguments.substr(end).starts_with("::{") && !says_nothing(identifier)) return identifier;
  }
  return {};
}

}  // namespace

std::string kernel_text(std::string_view name) {
  constexpr std::string_view anonymous = "(anonymous namespace)::";
  if (name.starts_with("void ")) name.remove_prefix(5);
  // Up to the parameters or the arguments of the template.
  std::size_t begin = 0, end = 0;
  for (; end < name.size() && name[end] != '<'; ++end) {
    if (name.substr(end).starts_with(anonymous)) {
      end += anonymous.size() - 1;
      begin = end + 1;
    } else if (name[end] == '(') {
      break;
    } else if (name.substr(end).starts_with("::")) {
      begin = ++end + 1;
    }
  }
  std::string text(name.substr(begin, end - begin));
  if (end < name.size() && name[end] == '<') {
    int depth = 0;
    auto close = end;
    for (; close < name.size(); ++close) {
      depth += name[close] == '<' ? 1 : name[close] == '>' ? -1 : 0;
      if (depth == 0) break;
    }
    const auto argument = telling_argument(name.substr(end + 1, close - end - 1));
    // PyTorch's kernels for one operation on each element, and CUTLASS's, are named by their arguments.
    if (text.find("elementwise_kernel") != std::string::npos) text = "elementwise";
    if (text == "Kernel" && !argument.empty()) return std::string(argument);
    if (!argument.empty()) text += "<" + std::string(argument) + ">";
  } else if ((text.starts_with("nccl") || text.starts_with("farandole_")) &&
             !name.substr(end).starts_with("(nccl")) {
    text = name.substr(begin);  // With the collective that launched it.
  }
  return text.empty() ? std::string(name) : text;
}

std::string percent(double fraction) {
  return fmt::format("{:.1f}", 100 * fraction);
}
std::string percent(const Figure& figure) {
  return figure.value ? percent_text(*figure.value) : "unknown";
}
std::string percent_text(double fraction) {
  return percent(fraction) + " %";
}

namespace {

constexpr auto time_units = {"µs", "ms", "s"};
constexpr auto size_units = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};

// Selects a suitable unit and divides `value` by it.
const char* const* unit_of(double& value, std::initializer_list<const char*> units) {
  const auto* unit = units.begin();
  for (; value >= 999.5 && unit + 1 != units.end(); ++unit) value /= 1000;
  return unit;
}

// Writes about three digits. Extreme values also stay narrow.
std::string in_units(double value, std::initializer_list<const char*> units, int decimals_of_first) {
  const auto* const unit = unit_of(value, units);
  if (value >= 1e5) return fmt::format("{:.2g} {}", value, *unit);
  return fmt::format("{:.{}f} {}", value, unit == units.begin() ? decimals_of_first : 2, *unit);
}

std::string tick_in_units(double value, std::initializer_list<const char*> units) {
  const auto* const unit = unit_of(value, units);
  return fmt::format("{:.4g} {}", value, *unit);
}

}  // namespace

std::string time_text(double us) {
  return in_units(us, time_units, 1);
}
std::string ms_text(double ms) {
  return time_text(1e3 * ms);
}
std::string size_text(double bytes) {
  return in_units(bytes, size_units, 0);
}
std::string number_text(double value) {
  const bool is_large = std::abs(value) >= 1e4 && std::abs(value) < 1e9;
  return is_large ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}
std::string ms_tick(double ms) {
  return tick_in_units(1e3 * ms, time_units);
}
std::string percent_tick(double fraction) {
  return fmt::format("{:.0f} %", 100 * fraction);
}
std::string size_tick(double bytes) {
  return tick_in_units(bytes, size_units);
}

}  // namespace farandole
