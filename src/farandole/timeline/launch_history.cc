#include "farandole/timeline/launch_history.h"

#include <algorithm>

namespace farandole {

void LaunchHistory::mark(const Mark& mark) {
  marks_.push_back(mark);
  if (marks_.size() > kept) marks_.pop_front();
}

void LaunchHistory::set_step(std::int64_t step, std::int64_t at_ns) {
  const std::lock_guard lock(mutex_);
  mark({at_ns, {step, marks_.empty() ? std::nullopt : marks_.back().place.phase}});
}

void LaunchHistory::enter(std::optional<Category> phase, std::int64_t at_ns) noexcept {
  const std::lock_guard lock(mutex_);
  const TrainingPlace before = marks_.empty() ? TrainingPlace{} : marks_.back().place;
  if (phase != before.phase) mark({at_ns, {before.step, phase}});
}

TrainingPlace LaunchHistory::place_at(std::int64_t at_ns) const {
  const std::lock_guard lock(mutex_);
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), at_ns,
                                      [](std::int64_t time, const Mark& mark) { return time < mark.at_ns; });
  return after == marks_.begin() ? TrainingPlace{} : std::prev(after)->place;
}

}  // namespace farandole
