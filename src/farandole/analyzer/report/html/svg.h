// A picture in SVG, piece by piece; colours come from the page's style sheet by class. Used by one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace farandole::html {

// &, <, >, quotation marks escaped; control characters and what is not UTF-8 replaced.
std::string escaped(std::string_view text);
// At most two decimals, none where they would be 0.
std::string number(double value);

inline constexpr double chart_width = 960;  // of every chart, in user units

enum class Anchor { start, middle, end };

class Svg {
 public:
  // In user units; the page scales it to the column's width. `label` says to those who do not see what it
  // shows.
  Svg(double width, double height, std::string_view label);

  void rect(double x, double y, double width, double height, std::string_view classes,
            std::string_view tip = "");
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  void text(double x, double y, Anchor anchor, std::string_view text, std::string_view classes = "");
  void circle(double x, double y, double radius, std::string_view classes, std::string_view tip = "");
  void path(std::string_view commands, std::string_view classes);
  void raw(std::string_view element);  // as it is

  std::string finish();

 private:
  std::string text_;
};

// A linear or logarithmic scale from values to places.
struct Axis {
  double low = 0, high = 1;   // values
  double begin = 0, end = 1;  // places
  bool logarithmic = false;

  double at(double value) const;
};

// About `count` round values within [low, high].
std::vector<double> ticks(double low, double high, int count);
// The powers of `base` within [low, high].
std::vector<double> powers(double low, double high, double base);
// Powers of ten within [low, high]; over less than two of them also 2 and 5 times those.
std::vector<double> decades(double low, double high);

}  // namespace farandole::html
