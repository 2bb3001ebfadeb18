#include "farandole/timeline/gpu/collective_launches.h"

#include <algorithm>

namespace farandole {

void CollectiveLaunches::add(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  launches_.push_back({std::string(name), begin_ns, end_ns});
  if (launches_.size() > kept) launches_.pop_front();
}

std::optional<std::string> CollectiveLaunches::at(std::int64_t ns) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::partition_point(launches_.begin(), launches_.end(),
                                          [&](const Launch& launch) { return launch.end_ns < ns; });
  if (found == launches_.end() || found->begin_ns > ns) return std::nullopt;
  return found->name;
}

}  // namespace farandole
