// What the process was doing at past times, when it launched the work of its GPUs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "farandole/timeline/event.h"

namespace farandole {

// Which collective of GPUs was being launched at past times. NCCL's kernels have the names of algorithms;
// with this, they get the names of buckets. NCCL may launch a kernel on a thread of its own, but does so
// before the call has returned.
// Thread safety: any thread may call this at any time.
class CollectiveLaunches {
 public:
  // Times do not decrease from call to call.
  void add(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns);
  // No value if none was being launched, or if it is too long ago.
  std::optional<std::string> at(std::int64_t ns) const;

 private:
  static constexpr std::size_t kept = 1 << 14;  // enough for hundreds of steps
  struct Launch {
    std::string name;
    std::int64_t begin_ns, end_ns;
  };
  mutable std::mutex mutex_;
  std::deque<Launch> launches_;  // oldest first
};

// The step and phase of the training thread at past times. GPU work is assigned to the step and phase of its
// launch time, whichever thread launched it (for example autograd's).
// Thread safety: none; use from one thread at a time. This thread marks and never waits. Any thread
// may call place_at().
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
