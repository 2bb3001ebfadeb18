// Small images with one colour in several strengths, as PNG in a data: address. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farandole::html {

std::string base64(std::string_view bytes);

// `strengths` goes row by row from 0 (transparent; the background of the page is visible) to 255
// (the full colour 0xRRGGBB).
std::string png_address(std::size_t width, std::size_t height, const std::vector<std::uint8_t>& strengths,
                        std::uint32_t colour);

}  // namespace farandole::html
