#include "farandole/analyzer/report/units.h"

#include <fmt/format.h>
#include <initializer_list>

namespace farandole {

std::string percent(double fraction) {
  return fmt::format("{:.1f}", 100 * fraction);
}
std::string percent(const Figure& figure) {
  return figure.value ? percent(*figure.value) + " %" : "unknown";
}

namespace {

// Three digits or so in the unit that fits; absurd values stay narrow.
std::string in_units(double value, double step, std::initializer_list<const char*> units,
                     int decimals_of_first) {
  auto unit = units.begin();
  for (; value >= step && unit + 1 != units.end(); ++unit) value /= step;
  if (value >= 1e5) return fmt::format("{:.2g} {}", value, *unit);
  return fmt::format("{:.{}f} {}", value, unit == units.begin() ? decimals_of_first : 2, *unit);
}

}  // namespace

std::string time_text(double us) {
  return in_units(us, 1000, {"µs", "ms", "s"}, 1);
}
std::string size_text(double bytes) {
  return in_units(bytes, 1000, {"B", "kB", "MB", "GB", "TB", "PB", "EB"}, 0);
}

}  // namespace farandole
