// The activity of one thread of this process: its spans and its stack. Another thread queries it by a signal
// that interrupts the thread for some microseconds.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "farandole/timeline/timeline.h"

namespace farandole {

struct ThreadSnapshot {
  struct InSpan {
    Category category = Category::other;
    std::string name;
    std::int64_t start_ns = 0;  // 0 if unknown because nothing is recorded
  };
  std::optional<InSpan> span;  // the innermost one
  // "function+0x1f in program", innermost first, up to 48. Lines of Python come first, and replace the frames
  // of its interpreter.
  std::vector<std::string> stack;
  std::string place;  // "loader.py:118 in fetch"; "" if the process is not Python
};

class ThreadProbe {
 public:
  // Probes the calling thread, which must outlive the probe. Permanently uses a free real-time
  // signal. Its handler restarts system calls, except those that can never be restarted (poll,
  // sleep); these end with EINTR.
  ThreadProbe();
  ThreadProbe(const ThreadProbe&) = delete;
  ThreadProbe& operator=(const ThreadProbe&) = delete;

  // Takes a snapshot. std::nullopt if the thread does not answer in time, because it is inside the kernel or
  // has blocked the signal.
  // Thread safety: none; use from one thread at a time. This is another thread than the one that is probed.
  std::optional<ThreadSnapshot> take(std::chrono::milliseconds patience);
  // The category of the innermost span. This does not interrupt the thread.
  std::optional<Category> category() const;
  pid_t thread() const { return thread_; }

 private:
  const pid_t thread_;
  const CurrentSpan& spans_;
  int signal_ = 0;  // 0 if no signal was free
};

}  // namespace farandole
