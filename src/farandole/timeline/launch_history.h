// In which step and phase the training thread was at a time: what GPU work is put down to by when it was
// launched, whatever thread launched it, such as autograd's. One thread marks, others ask.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "farandole/timeline/event.h"

namespace farandole {

class LaunchHistory {
 public:
  // Times do not decrease.
  void set_step(std::int64_t step, std::int64_t at_ns);  // -1: outside of steps
  void enter(std::optional<Category> phase, std::int64_t at_ns) noexcept;
  // No step and no phase for times that lie further back than `kept` marks.
  TrainingPlace place_at(std::int64_t at_ns) const;

 private:
  static constexpr std::size_t kept = 1 << 16;  // of thousands of steps
  struct Mark {
    std::int64_t at_ns;
    TrainingPlace place;
  };
  void mark(const Mark& mark);

  mutable std::mutex mutex_;
  std::deque<Mark> marks_;
};

}  // namespace farandole
