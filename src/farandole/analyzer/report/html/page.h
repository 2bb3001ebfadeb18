// The frame of an HTML page that loads nothing else: style sheet, script, head and foot. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>

namespace farandole::html {

std::string page(std::string_view title, std::string_view body);

}  // namespace farandole::html
