// In which step and phase the training thread was at a time: what GPU work is put down to by when it was
// launched, whatever thread launched it, such as autograd's. One thread marks, and never waits; others ask.
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

  // Times do not decrease.
  void set_step(std::int64_t step, std::int64_t at_ns) noexcept;  // -1: outside of steps
  void enter(std::optional<Category> phase, std::int64_t at_ns) noexcept;
  // No step and no phase for times that lie further back than `kept` marks.
  TrainingPlace place_at(std::int64_t at_ns) const noexcept;

 private:
  static constexpr std::uint64_t kept = 1 << 16;  // of thousands of steps
  static constexpr int no_phase = -1;
  // Each part is stored behind the count of those before it, so that who reads a part of a mark that takes
  // an older one's place finds by the count that it does.
  struct Mark {
    std::atomic<std::int64_t> at_ns{0}, step{-1};
    std::atomic<int> phase{no_phase};
  };
  void mark(const TrainingPlace& place, std::int64_t at_ns) noexcept;

  const std::unique_ptr<Mark[]> marks_;  // a ring: the nth is at n % kept
  std::atomic<std::uint64_t> count_{0};
  TrainingPlace last_;  // of the thread that marks
};

}  // namespace farandole
