#include <fmt/format.h>
#include <string_view>
#include <unistd.h>

#include "farandole/base/text/parse_number.h"
#include "farandole/launch/launcher.h"

namespace farandole {
namespace {

struct LaunchedBy {
  pid_t pid = 0;
  std::filesystem::path folder;
};

LaunchedBy parse_launched_by(const Environment& environment) {
  const char* value = environment(launched_by_variable);
  const std::string_view text = value == nullptr ? "" : value;
  const auto colon = text.find(':');
  if (colon == text.npos) return {};
  return {parse_number<pid_t>(text.substr(0, colon)).value_or(0), text.substr(colon + 1)};
}

}  // namespace

std::string launched_by(const std::filesystem::path& folder) {
  return fmt::format("{}:{}", ::getpid(), folder.string());
}

std::filesystem::path folder_of_caller(const Environment& environment) {
  const auto [pid, folder] = parse_launched_by(environment);
  return pid == ::getppid() ? folder : "";
}

std::filesystem::path folder_of_launch(const Environment& environment) {
  return parse_launched_by(environment).folder;
}

}  // namespace farandole
