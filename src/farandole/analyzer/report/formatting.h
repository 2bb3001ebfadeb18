// Figures, lines and aligned tables as text. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

inline constexpr std::size_t report_columns = 100;

// Writes ANSI attributes, or nothing.
class Style {
 public:
  explicit Style(bool colour) : colour_(colour) {}
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string bad(std::string_view text) const { return wrap("1;31", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  bool colour_;
};

// Returns the number of columns of a UTF-8 text without wide characters.
std::size_t width_of(std::string_view text);
// Shortens the text to `columns`; a shortened text ends in "…". Control characters, which could control
// a terminal, become "?".
std::string shortened(std::string_view text, std::size_t columns);
// Breaks the text at spaces. Each line except the first begins with `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns = report_columns);

// The first `left` columns are aligned to the left and the others to the right. Two
// spaces precede each column.
class TextTable {
 public:
  TextTable(std::vector<std::string> header, std::size_t left) : header_(std::move(header)), left_(left) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text(const Style& style) const;

 private:
  std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const;

  std::vector<std::string> header_;
  std::size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

std::string percent(double fraction);       // 0.905 becomes "90.5".
std::string percent(const Figure& figure);  // "90.5 %" or "unknown".
std::string percent_text(double fraction);  // "90.5 %"
std::string time_text(double us);           // "85.71 ms"; extreme values stay narrow.
std::string ms_text(double ms);             // As time_text().
std::string size_text(double bytes);        // "1.19 MB", with factor 1000.
std::string number_text(double value);      // Any value, with four digits or more: "0.02346", "1.2e-05".

// What distinguishes a kernel from others, without namespaces, parameters and types:
// "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float,
// at::native::sum_functor<…" becomes "reduce_kernel<sum_functor>".
std::string kernel_text(std::string_view name);

// Labels of an axis: "50 ms", "1.5 MB", "20 %".
std::string ms_tick(double ms);
std::string size_tick(double bytes);
std::string percent_tick(double fraction);

}  // namespace farandole
