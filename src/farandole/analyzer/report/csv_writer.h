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

class Csv {
 public:
  explicit Csv(std::initializer_list<std::string_view> header) {
    for (const auto name : header) cell(std::string(name));
    end();
  }

  Csv& cell(const std::string& text) {
    if (!first_) text_ += ',';
    first_ = false;
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
      text_ += text;
      return *this;
    }
    text_ += '"';
    for (const char c : text) text_ += c == '"' ? std::string("\"\"") : std::string(1, c);
    text_ += '"';
    return *this;
  }
  Csv& cell(double value) { return cell(fmt::format("{}", value)); }
  Csv& cell(const Figure& figure) { return figure.value ? cell(*figure.value) : cell(std::string()); }
  template <class Integer>
  requires std::is_integral_v<Integer> Csv& cell(Integer value) { return cell(std::to_string(value)); }
  Csv& seconds(std::int64_t ns) { return cell(static_cast<double>(ns) * 1e-9); }
  void end() {
    text_ += "\r\n";
    first_ = true;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool first_ = true;
};

}  // namespace farandole
