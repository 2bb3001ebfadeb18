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

constexpr auto time_units = {"µs", "ms", "s"};
constexpr auto size_units = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};

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
  return in_units(us, time_units, 1);
}
std::string ms_text(double ms) {
  return time_text(1e3 * ms);
}
std::string size_text(double bytes) {
  return in_units(bytes, size_units, 0);
}
std::string ms_tick(double ms) {
  return tick_in_units(1e3 * ms, time_units);
}
std::string percent_tick(double fraction) {
  return fmt::format("{:.0f} %", 100 * fraction);
}
std::string size_tick(double bytes) {
  return tick_in_units(bytes, size_units);
}

}  // namespace farandole
