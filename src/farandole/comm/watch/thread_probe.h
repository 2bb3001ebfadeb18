// What one thread of this process is doing: its spans and its stack, asked for from another thread by a
// signal that interrupts it for some microseconds.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "farandole/timeline/current_span.h"

namespace farandole {

struct ThreadSnapshot {
  struct InSpan {
    Category category = Category::other;
    std::string name;
    std::int64_t start_ns = 0;  // 0: unknown, nothing is recorded
  };
  std::vector<InSpan> spans;       // innermost first, at most 8
  std::vector<std::string> stack;  // "function+0x1f in program", innermost first, at most 48
};

class ThreadProbe {
 public:
  // For the calling thread, which outlives the probe. Takes a real-time signal that nobody uses, for good:
  // its handler restarts system calls, but those that never restart (poll, sleep) end with EINTR.
  ThreadProbe();
  ThreadProbe(const ThreadProbe&) = delete;
  ThreadProbe& operator=(const ThreadProbe&) = delete;

  // From another thread, one at a time. Nothing where the thread does not come to it in time: it sits in the
  // kernel, or has blocked the signal.
  std::optional<ThreadSnapshot> take(std::chrono::milliseconds patience);
  // Of the innermost span; asks nobody.
  std::optional<Category> category() const;
  pid_t thread() const { return thread_; }

 private:
  const pid_t thread_;
  const CurrentSpan& spans_;
  int signal_ = 0;  // 0: none was free
};

}  // namespace farandole
