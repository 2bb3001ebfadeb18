// Which steps are recorded, as options give it. A plain value; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

// --timeline off|steps=A-B|all (A and B inclusive; events outside of steps always
// are, but for off).
struct StepWindow {
  std::int64_t first = 0;
  std::int64_t last = INT64_MAX;                   // last < first: off
  static StepWindow parse(std::string_view text);  // throws UserError
  bool off() const { return last < first; }
};

}  // namespace farandole
