// Writes an SVG picture element by element. The colours come from CSS classes of the page.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
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

// A linear or logarithmic scale that maps values to positions.
struct Axis {
  double low = 0, high = 1;   // Range of values.
  double begin = 0, end = 1;  // Range of positions.
  bool logarithmic = false;

  double at(double value) const;
};

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
  // Draws a line across the chart at each of `values`, and its text on the left (`across`) or at the bottom.
  void rows(const Axis& y, const std::vector<double>& values, const Axis& across,
            const std::function<std::string(double)>& text);
  void columns(const Axis& x, const std::vector<double>& values, double top, double bottom, double text_y,
               const std::function<std::string(double)>& text);
  void raw(std::string_view element);  // Adds the element without escaping it.

  std::string finish();

 private:
  std::string text_;
};

// Returns about `count` round values within [low, high].
std::vector<double> ticks(double low, double high, int count);
// Returns the powers of `base` within [low, high].
std::vector<double> powers(double low, double high, double base);
// Returns the powers of ten within [low, high]. If there are fewer than two, the result also has 2
// and 5 times those.
std::vector<double> decades(double low, double high);

std::string base64(std::string_view bytes);

// `strengths` goes row by row from 0 (transparent; the background of the page is visible) to 255
// (the full colour 0xRRGGBB).
std::string png_address(std::size_t width, std::size_t height, const std::vector<std::uint8_t>& strengths,
                        std::uint32_t colour);

}  // namespace farandole::html
