// In which steps the activity of GPUs is recorded, as options give it. A plain value.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "farandole/timeline/step_window.h"

namespace farandole {

struct ActivitySteps {
  // What "sample" means: this number of steps after the first ones of the process, which are slower, and then
  // as many of every so many.
  static constexpr std::int64_t warm_up = 10, length = 10, every = 1000;

  StepWindow window{};
  bool is_sample = false;  // Then the window is not used.

  static constexpr ActivitySteps sample() { return {{}, true}; }
  // sample|off|steps=A-B|all, as StepWindow::parse(); "" is sample.
  // Throws: UserError that names the option.
  static ActivitySteps parse(std::string_view text, std::string_view option);

  bool off() const { return !is_sample && window.off(); }
  // `number` is that of the step, and `ordinal` counts the steps of the process from 0.
  bool includes(std::int64_t number, std::int64_t ordinal) const {
    if (!is_sample) return number >= window.first && number <= window.last;
    return ordinal >= warm_up && (ordinal - warm_up) % every < length;
  }
  std::string describe() const;  // for people
};

}  // namespace farandole
