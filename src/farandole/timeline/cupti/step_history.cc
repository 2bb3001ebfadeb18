#include "farandole/timeline/cupti/step_history.h"

#include <algorithm>

namespace farandole {

void StepHistory::mark(std::int64_t at_ns, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  marks_.push_back({at_ns, step});
  if (marks_.size() > kept) marks_.pop_front();
}

std::int64_t StepHistory::step_at(std::int64_t at_ns) const {
  const std::lock_guard lock(mutex_);
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), at_ns,
                                      [](std::int64_t time, const Mark& mark) { return time < mark.at_ns; });
  return after == marks_.begin() ? -1 : std::prev(after)->step;
}

}  // namespace farandole
