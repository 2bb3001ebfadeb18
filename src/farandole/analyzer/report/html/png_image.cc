#include "farandole/analyzer/report/html/png_image.h"

#include <zlib.h>

#include "farandole/base/error.h"

namespace farandole::html {
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
