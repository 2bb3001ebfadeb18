// Which steps are recorded, as options give it. A plain value.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

struct StepWindow {
  std::int64_t first = 0;
  std::int64_t last = INT64_MAX;  // last < first: off
  // off|steps=A-B|all. A and B are inclusive. Events outside of steps are recorded until B has ended, unless
  // the text is "off".
  // Throws: UserError that names the option.
  static StepWindow parse(std::string_view text, std::string_view option);
  // A-B|all, of an option that has "steps" in its name.
  // Throws: UserError that names the option.
  static StepWindow parse_steps(std::string_view text, std::string_view option);
  bool off() const { return last < first; }
  bool bounded() const { return last < INT64_MAX; }
};

}  // namespace farandole
