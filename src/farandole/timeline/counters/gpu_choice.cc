#include "farandole/timeline/counters/gpu_choice.h"

#include <string_view>
#include <vector>

#include "farandole/base/parse_number.h"

namespace farandole {
namespace {

// CUDA reads the list only up to the first entry that is not a device.
std::vector<std::string> devices_in(std::string_view list) {
  std::vector<std::string> devices;
  while (true) {
    const auto comma = list.find(',');
    const auto entry = list.substr(0, comma);
    const bool is_uuid = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!is_uuid && !parse_number<unsigned>(entry)) return devices;
    devices.emplace_back(entry);
    if (comma == std::string_view::npos) return devices;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string gpu_of_rank(int local_rank, const char* visible_devices) {
  if (visible_devices == nullptr) return std::to_string(local_rank);
  const auto devices = devices_in(visible_devices);
  return devices.empty() ? "" : devices[static_cast<std::size_t>(local_rank) % devices.size()];
}

}  // namespace farandole
