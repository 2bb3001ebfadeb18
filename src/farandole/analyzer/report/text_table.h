// Aligned tables and wrapped lines for terminals. Plain values, usable from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

inline constexpr std::size_t report_columns = 100;

// ANSI attributes, or nothing.
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

// Columns that the text takes, of UTF-8 without wide characters.
std::size_t width_of(std::string_view text);
// At most `columns` wide; what is longer ends in "…". Control characters, which could steer a terminal,
// become "?".
std::string shortened(std::string_view text, std::size_t columns);
// Breaks at spaces; each line but the first begins with `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns = report_columns);

// The first `left` columns are aligned to the left, the others to the right; two spaces before and between.
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

}  // namespace farandole
