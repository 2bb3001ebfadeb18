#include "farandole/base/clock.h"

#include <array>
#include <functional>
#include <string>
#include <unistd.h>

#include "farandole/base/host.h"

namespace farandole {

std::uint32_t clock_id() {
  const std::string boot = boot_id();
  if (boot.empty()) return 0;
  std::array<char, 64> name{};  // stays empty before Linux 5.6
  [[maybe_unused]] const auto length = ::readlink("/proc/self/ns/time", name.data(), name.size() - 1);
  const std::uint64_t hash = std::hash<std::string>()(boot + name.data());
  const auto id = static_cast<std::uint32_t>(hash ^ hash >> 32);
  return id != 0 ? id : 1;
}

}  // namespace farandole
