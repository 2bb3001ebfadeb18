// The range of steps to record, as an option gives it. A plain value.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

struct StepWindow {
  std::int64_t first = 0;
  std::int64_t last = INT64_MAX;  // last < first means off
  // Parses off|steps=A-B|all. A and B are inclusive. Unless the value is off, events outside of steps are
  // recorded until step B has ended.
  // Throws: UserError that names the option if `text` has another form.
  static StepWindow parse(std::string_view text, std::string_view option);
  // Parses A-B|all, for an option whose name already contains "steps".
  // Throws: UserError that names the option if `text` has another form.
  static StepWindow parse_steps(std::string_view text, std::string_view option);
  bool off() const { return last < first; }
  bool bounded() const { return last < INT64_MAX; }
};

}  // namespace farandole
