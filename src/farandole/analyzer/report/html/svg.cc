#include "farandole/analyzer/report/html/svg.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <zlib.h>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"

namespace farandole::html {
namespace {

constexpr const char* anchors[] = {"start", "middle", "end"};

std::string titled(std::string_view tip) {
  return tip.empty() ? "/>" : "><title>" + escaped(tip) + "</title>";
}

std::string closed(std::string_view tip, const char* tag) {
  return tip.empty() ? "" : fmt::format("</{}>", tag);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto length = character_bytes(text);
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

void Svg::rows(const Axis& y, const std::vector<double>& values, const Axis& across,
               const std::function<std::string(double)>& text) {
  for (const double value : values) {
    line(across.begin, y.at(value), across.end, y.at(value), "grid");
    this->text(across.begin - 8, y.at(value) + 4, Anchor::end, text(value), "small");
  }
}

void Svg::columns(const Axis& x, const std::vector<double>& values, double top, double bottom, double text_y,
                  const std::function<std::string(double)>& text) {
  for (const double value : values) {
    line(x.at(value), top, x.at(value), bottom, "grid");
    this->text(x.at(value), text_y, Anchor::middle, text(value), "small");
  }
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
namespace {

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string chunk(const std::string& kind, const std::string& data) {
  const auto body = kind + data;
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body +
         big_endian(static_cast<std::uint32_t>(crc));
}

std::string deflated(const std::string& raw) {
  uLongf size = compressBound(static_cast<uLong>(raw.size()));
  std::string packed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()),
                static_cast<uLong>(raw.size()), 9) != Z_OK)
    throw Error("zlib could not compress a picture of the report");
  packed.resize(size);
  return packed;
}

}  // namespace

std::string base64(std::string_view bytes) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j <= bytes.size() ? digits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string png_address(std::size_t width, std::size_t height, const std::vector<std::uint8_t>& strengths,
                        std::uint32_t colour) {
  std::string palette, alpha, rows;
  for (int i = 0; i < 256; ++i) {
    palette += big_endian(colour).substr(1);
    alpha += static_cast<char>(i);
  }
  for (std::size_t y = 0; y < height; ++y) {
    rows += '\0';  // Filter type 0: no filter.
    rows.append(reinterpret_cast<const char*>(strengths.data()) + y * width, width);
  }
  const std::string header = big_endian(static_cast<std::uint32_t>(width)) +
                             big_endian(static_cast<std::uint32_t>(height)) +
                             std::string("\x08\x03\x00\x00\x00", 5);
  const auto png = std::string("\x89PNG\r\n\x1a\n", 8) + chunk("IHDR", header) + chunk("PLTE", palette) +
                   chunk("tRNS", alpha) + chunk("IDAT", deflated(rows)) + chunk("IEND", "");
  return "data:image/png;base64," + base64(png);
}

}  // namespace farandole::html
