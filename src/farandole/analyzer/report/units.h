// Formats figures for readers. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

std::string percent(double fraction);         // 0.905 becomes "90.5".
std::string percent(const Figure& figure);    // "90.5 %" or "unknown".
std::string percent_text(double fraction);    // "90.5 %"
std::string signed_percent(double fraction);  // "+3.1 %"
std::string time_text(double us);             // "85.71 ms"; extreme values stay narrow.
std::string ms_text(double ms);               // As time_text().
std::string size_text(double bytes);          // "1.19 MB", with factor 1000.

// Labels of an axis: "50 ms", "1.5 MB", "20 %".
std::string ms_tick(double ms);
std::string size_tick(double bytes);
std::string percent_tick(double fraction);

}  // namespace farandole
