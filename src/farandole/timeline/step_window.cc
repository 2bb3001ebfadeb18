#include "farandole/timeline/step_window.h"

#include <fmt/format.h>
#include <optional>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// Parses "A-B"; std::nullopt if `text` has another form.
std::optional<StepWindow> range_of(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number<std::int64_t>(text.substr(0, dash));
  const auto last = parse_number<std::int64_t>(text.substr(dash + 1));
  if (!first || *first < 0 || !last || *last < *first) return std::nullopt;
  return StepWindow{*first, *last};
}

UserError wrong(std::string_view option, std::string_view text, std::string_view what_it_is) {
  return UserError(fmt::format("{} cannot be '{}'; give {}", option, text, what_it_is));
}

}  // namespace

StepWindow StepWindow::parse(std::string_view text, std::string_view option) {
  if (text == "all") return {};
  if (text == "off") return {0, -1};
  constexpr std::string_view prefix = "steps=";
  if (text.starts_with(prefix))
    if (const auto range = range_of(text.substr(prefix.size()))) return *range;
  throw wrong(option, text, "off, steps=A-B or all");
}

StepWindow StepWindow::parse_steps(std::string_view text, std::string_view option) {
  if (text == "all") return {};
  if (const auto range = range_of(text)) return *range;
  throw wrong(option, text, "the first and the last step, for example 100-200, or all");
}

}  // namespace farandole
