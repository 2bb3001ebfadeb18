#include "farandole/analyzer/report/units.h"

#include <cmath>
#include <fmt/format.h>
#include <initializer_list>

namespace farandole {

std::string percent(double fraction) {
  return fmt::format("{:.1f}", 100 * fraction);
}
std::string percent(const Figure& figure) {
  return figure.value ? percent_text(*figure.value) : "unknown";
}
std::string percent_text(double fraction) {
  return percent(fraction) + " %";
}
std::string signed_percent(double fraction) {
  return fmt::format("{}{:.1f} %", fraction < 0 ? "−" : "+", 100 * std::abs(fraction));
}

namespace {

constexpr auto times = {"µs", "ms", "s"};
constexpr auto sizes = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};

// Selects a suitable unit and divides `value` by it.
const char* const* unit_of(double& value, std::initializer_list<const char*> units) {
  const auto* unit = units.begin();
  for (; value >= 999.5 && unit + 1 != units.end(); ++unit) value /= 1000;
  return unit;
}

// Writes about three digits. Extreme values also stay narrow.
std::string in_units(double value, std::initializer_list<const char*> units, int decimals_of_first) {
  const auto* const unit = unit_of(value, units);
  if (value >= 1e5) return fmt::format("{:.2g} {}", value, *unit);
  return fmt::format("{:.{}f} {}", value, unit == units.begin() ? decimals_of_first : 2, *unit);
}

std::string tick_in_units(double value, std::initializer_list<const char*> units) {
  const auto* const unit = unit_of(value, units);
  return fmt::format("{:.4g} {}", value, *unit);
}

}  // namespace

std::string time_text(double us) {
  return in_units(us, times, 1);
}
std::string size_text(double bytes) {
  return in_units(bytes, sizes, 0);
}
std::string time_tick(double us) {
  return tick_in_units(us, times);
}
std::string size_tick(double bytes) {
  return tick_in_units(bytes, sizes);
}

}  // namespace farandole
