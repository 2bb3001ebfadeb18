// Writes rows of comma-separated values (RFC 4180) and quotes cells if necessary.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

inline double seconds_of(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

class Csv {
 public:
  explicit Csv(std::initializer_list<std::string_view> header) {
    for (const auto name : header) cell(name);
    end();
  }

  Csv& cell(std::string_view text) {
    if (!first_) text_ += ',';
    first_ = false;
    const bool quoted = text.find_first_of(",\"\r\n") != std::string_view::npos;
    if (quoted) text_ += '"';
    for (const char c : text) text_.append(quoted && c == '"' ? 2 : 1, c);
    if (quoted) text_ += '"';
    return *this;
  }
  Csv& cell(double value) { return cell(fmt::format("{}", value)); }
  Csv& cell(const Figure& figure) { return figure.value ? cell(*figure.value) : cell(""); }
  template <class Integer>
  requires std::is_integral_v<Integer> Csv& cell(Integer value) { return cell(std::to_string(value)); }
  // Appends these cells and ends the row.
  template <class... Cells>
  void row(const Cells&... cells) {
    (cell(cells), ...);
    end();
  }
  std::string take() { return std::move(text_); }

 private:
  void end() {
    text_ += "\r\n";
    first_ = true;
  }

  std::string text_;
  bool first_ = true;
};

}  // namespace farandole
