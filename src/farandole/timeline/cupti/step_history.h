// Which step the training thread was in at a time. One thread marks, others ask.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

namespace farandole {

class StepHistory {
 public:
  void mark(std::int64_t at_ns, std::int64_t step);
  // -1 outside of steps, and for times that lie further back than `kept` marks.
  std::int64_t step_at(std::int64_t at_ns) const;

 private:
  static constexpr std::size_t kept = 8192;
  struct Mark {
    std::int64_t at_ns, step;
  };
  mutable std::mutex mutex_;
  std::deque<Mark> marks_;
};

}  // namespace farandole
