#include "farandole/timeline/step_window.h"

#include <string>

#include "farandole/base/error.h"
#include "farandole/base/parse_number.h"

namespace farandole {

StepWindow StepWindow::parse(std::string_view text) {
  if (text == "all") return {};
  if (text == "off") return {0, -1};
  const auto wrong = [&] {
    return UserError("timeline '" + std::string(text) + "' is not understood: give off, all or steps=A-B");
  };
  constexpr std::string_view prefix = "steps=";
  const std::size_t dash = text.find('-');
  if (!text.starts_with(prefix) || dash == std::string_view::npos) throw wrong();
  const auto number = [&](std::string_view digits) {
    const auto value = parse_number<std::int64_t>(digits);
    if (!value || *value < 0) throw wrong();
    return *value;
  };
  const StepWindow window{number(text.substr(prefix.size(), dash - prefix.size())),
                          number(text.substr(dash + 1))};
  if (window.off())
    throw UserError("timeline '" + std::string(text) + "' ends before it starts: give off to record nothing");
  return window;
}

}  // namespace farandole
