// Small pictures of one colour in many strengths, as PNG in a data: address. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::html {

std::string base64(std::string_view bytes);

// `strengths`: row by row, 0 (transparent, so that the page's background shows) to 255 (the whole colour
// 0xRRGGBB).
std::string png_address(std::size_t width, std::size_t height, const std::vector<std::uint8_t>& strengths,
                        std::uint32_t colour);

}  // namespace farandole::html
