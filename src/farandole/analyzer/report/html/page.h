// The frame of an HTML page that needs nothing else: style sheet, script, head and foot. Plain functions.
#pragma once

#include <string>
#include <string_view>

namespace farandole::html {

std::string page(std::string_view title, std::string_view body);

}  // namespace farandole::html
