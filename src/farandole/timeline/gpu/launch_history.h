// The step and phase of the training thread at past times. GPU work is assigned to the step and phase of its
// launch time, whichever thread launched it (for example autograd's).
// Thread safety: none; use from one thread at a time. This thread marks and never waits. Any thread
// may call place_at().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "farandole/timeline/event.h"

namespace farandole {

class LaunchHistory {
 public:
  LaunchHistory();

  // Times must not decrease.
  void set_step(std::int64_t step, std::int64_t at_ns) noexcept;  // -1 means outside of steps
  void enter(std::optional<Category> phase, std::int64_t at_ns) noexcept;
  // Returns no step and no phase for times older than the last `kept` marks.
  TrainingPlace place_at(std::int64_t at_ns) const noexcept;

 private:
  static constexpr std::uint64_t kept = 1 << 16;  // enough for thousands of steps
  static constexpr int no_phase = -1;
  // The writer stores each part of a mark after the count of the earlier marks. A reader that sees a part of
  // a newer mark therefore also sees a count which shows that the old mark was overwritten.
  struct Mark {
    std::atomic<std::int64_t> at_ns{0}, step{-1};
    std::atomic<int> phase{no_phase};
  };
  void mark(const TrainingPlace& place, std::int64_t at_ns) noexcept;

  const std::unique_ptr<Mark[]> marks_;  // a ring; mark n is at n % kept
  std::atomic<std::uint64_t> count_{0};
  TrainingPlace last_;  // used by the marking thread only
};

}  // namespace farandole
