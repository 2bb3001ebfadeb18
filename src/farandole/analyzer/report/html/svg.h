// Writes an SVG picture element by element. The colours come from CSS classes of the page.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace farandole::html {

// Escapes &, <, > and quotation marks. Replaces control characters and invalid UTF-8.
std::string escaped(std::string_view text);
// Writes at most two decimals and no trailing zeros.
std::string number(double value);

inline constexpr double chart_width = 960;  // Width of every chart in user units.

enum class Anchor { start, middle, end };

class Svg {
 public:
  // Width and height are in user units; the page scales the picture to its column. `label` describes the
  // picture for screen readers.
  Svg(double width, double height, std::string_view label);

  void rect(double x, double y, double width, double height, std::string_view classes,
            std::string_view tip = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void text(double x, double y, Anchor anchor, std::string_view text, std::string_view classes = "");
  void circle(double x, double y, double radius, std::string_view classes, std::string_view tip = "");
  void path(std::string_view commands, std::string_view classes);
  void raw(std::string_view element);  // Adds the element without escaping it.

  std::string finish();

 private:
  std::string text_;
};

// A linear or logarithmic scale that maps values to positions.
struct Axis {
  double low = 0, high = 1;   // Range of values.
  double begin = 0, end = 1;  // Range of positions.
  bool logarithmic = false;

  double at(double value) const;
};

// Returns about `count` round values within [low, high].
std::vector<double> ticks(double low, double high, int count);
// Returns the powers of `base` within [low, high].
std::vector<double> powers(double low, double high, double base);
// Returns the powers of ten within [low, high]. If there are fewer than two, the result also has 2
// and 5 times those.
std::vector<double> decades(double low, double high);

}  // namespace farandole::html
