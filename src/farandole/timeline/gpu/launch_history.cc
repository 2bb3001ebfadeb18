#include "farandole/timeline/gpu/launch_history.h"

#include <algorithm>

namespace farandole {

LaunchHistory::LaunchHistory() : marks_(std::make_unique<Mark[]>(kept)) {}

void LaunchHistory::mark(const TrainingPlace& place, std::int64_t at_ns) noexcept {
  const auto count = count_.load(std::memory_order_relaxed);
  Mark& mark = marks_[count % kept];
  mark.at_ns.store(at_ns, std::memory_order_release);
  mark.step.store(place.step, std::memory_order_release);
  mark.phase.store(place.phase ? static_cast<int>(*place.phase) : no_phase, std::memory_order_release);
  count_.store(count + 1, std::memory_order_release);
  last_ = place;
}

void LaunchHistory::set_step(std::int64_t step, std::int64_t at_ns) noexcept {
  mark({step, last_.phase}, at_ns);
}

void LaunchHistory::enter(std::optional<Category> phase, std::int64_t at_ns) noexcept {
  if (phase != last_.phase) mark({last_.step, phase}, at_ns);
}

// A mark that is overwritten during the search shows a later time than any time asked for. The search then
// ends at an older mark, which is overwritten too and is rejected below.
TrainingPlace LaunchHistory::place_at(std::int64_t at_ns) const noexcept {
  const auto count = count_.load(std::memory_order_acquire);
  std::uint64_t first = count < kept ? 0 : count - kept + 1, behind = count;
  const auto oldest = first;
  while (first < behind) {
    const auto middle = first + (behind - first) / 2;
    if (at_ns < marks_[middle % kept].at_ns.load(std::memory_order_acquire))
      behind = middle;
    else
      first = middle + 1;
  }
  if (first == oldest) return {};
  const Mark& mark = marks_[(first - 1) % kept];
  const auto step = mark.step.load(std::memory_order_acquire);
  const auto phase = mark.phase.load(std::memory_order_acquire);
  if (count_.load(std::memory_order_acquire) >= first - 1 + kept) return {};  // overwritten during the search
  return {step, phase == no_phase ? std::nullopt : std::optional(static_cast<Category>(phase))};
}

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
