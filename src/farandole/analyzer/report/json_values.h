// Figures and ranges in the format of the JSON report. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

inline nlohmann::ordered_json unknown(const std::string& why) {
  return {{"unknown", why}};
}
inline nlohmann::ordered_json json_of(const Figure& figure) {
  return figure.value ? nlohmann::ordered_json(*figure.value) : unknown(figure.unknown);
}
inline nlohmann::ordered_json json_of(const Range& range) {
  return nlohmann::ordered_json::array({range.low, range.high});
}

}  // namespace farandole
