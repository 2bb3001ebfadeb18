#include "farandole/analyzer/report/html/svg.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace farandole::html {
namespace {

constexpr const char* anchors[] = {"start", "middle", "end"};

std::string titled(std::string_view tip) {
  return tip.empty() ? "/>" : "><title>" + escaped(tip) + "</title>";
}

std::string closed(std::string_view tip, const char* tag) {
  return tip.empty() ? "" : fmt::format("</{}>", tag);
}

// Returns the length of the first UTF-8 character, or 0 if it is invalid.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80       ? 1
                             : byte(0) >> 5 == 6  ? 2
                             : byte(0) >> 4 == 14 ? 3
                             : byte(0) >> 3 == 30 ? 4
                                                  : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (byte(i) >> 6 != 2) return 0;
  return length;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto length = character_length(text);
    const char c = text[0];
    if (length == 0)
      result += "\xEF\xBF\xBD";
    else if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F))
      result += '?';
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "0";
  auto text = fmt::format("{:.2f}", std::clamp(value, -1e7, 1e7));
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

Svg::Svg(double width, double height, std::string_view label)
    : text_(fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", number(width),
                        number(height), escaped(label))) {}

void Svg::rect(double x, double y, double width, double height, std::string_view classes,
               std::string_view tip) {
  text_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" class="{}"{}{})", number(x), number(y),
                       number(std::max(0.0, width)), number(std::max(0.0, height)), classes, titled(tip),
                       closed(tip, "rect"));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  text_ += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>)", number(x1), number(y1),
                       number(x2), number(y2), classes);
}

void Svg::text(double x, double y, Anchor anchor, std::string_view text, std::string_view classes) {
  text_ += fmt::format(R"(<text x="{}" y="{}")", number(x), number(y));
  if (anchor != Anchor::start)
    text_ += fmt::format(R"( text-anchor="{}")", anchors[static_cast<int>(anchor)]);
  if (!classes.empty()) text_ += fmt::format(R"( class="{}")", classes);
  text_ += ">" + escaped(text) + "</text>";
}

void Svg::circle(double x, double y, double radius, std::string_view classes, std::string_view tip) {
  text_ += fmt::format(R"(<circle cx="{}" cy="{}" r="{}" class="{}"{}{})", number(x), number(y),
                       number(radius), classes, titled(tip), closed(tip, "circle"));
}

void Svg::path(std::string_view commands, std::string_view classes) {
  text_ += fmt::format(R"(<path d="{}" class="{}"/>)", commands, classes);
}

void Svg::raw(std::string_view element) {
  text_ += element;
}

std::string Svg::finish() {
  return std::move(text_) + "</svg>\n";
}

double Axis::at(double value) const {
  const auto scaled = [&](double v) { return logarithmic ? std::log(v) : v; };
  const double span = scaled(high) - scaled(low);
  const double part = span > 0 ? (scaled(value) - scaled(low)) / span : 0.5;
  return begin + std::clamp(part, -0.05, 1.05) * (end - begin);
}

std::vector<double> ticks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high - low)) return {low};
  const double raw = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0})
    if (step < raw / 1.3) step = power * factor;
  std::vector<double> found;
  for (double at = std::ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step && found.size() < 100;
       at += step)
    found.push_back(std::abs(at) < 1e-9 * step ? 0 : at);
  return found;
}

std::vector<double> powers(double low, double high, double base) {
  std::vector<double> found;
  if (!(low > 0) || !(high >= low)) return found;
  for (double at = std::pow(base, std::ceil(std::log(low) / std::log(base) - 1e-9));
       at <= high * 1.0001 && found.size() < 60; at *= base)
    found.push_back(at);
  return found;
}

std::vector<double> decades(double low, double high) {
  if (!(low > 0) || high / low > 200) return powers(low, high, 10);
  std::vector<double> found;
  for (const double power : powers(low / 10, high, 10))
    for (const double factor : {1.0, 2.0, 5.0})
      if (power * factor >= low && power * factor <= high) found.push_back(power * factor);
  return found;
}

}  // namespace farandole::html
