#include "farandole/timeline/gpu/activity_steps.h"

#include <fmt/format.h>

#include "farandole/base/error.h"

namespace farandole {

ActivitySteps ActivitySteps::parse(std::string_view text, std::string_view option) {
  if (text.empty() || text == "sample") return sample();
  try {
    return {StepWindow::parse(text, option)};
  } catch (const UserError&) {
    throw UserError(fmt::format("{} cannot be '{}'; give sample, off, steps=A-B or all", option, text));
  }
}

std::string ActivitySteps::describe() const {
  if (is_sample)
    return fmt::format("{} steps after the first {}, and {} of every {}; SIGUSR2: the next {}", length,
                       warm_up, length, every, length);
  if (window.off()) return "off";
  return window.bounded() ? fmt::format("steps {} to {}", window.first, window.last) : "all steps";
}

}  // namespace farandole
