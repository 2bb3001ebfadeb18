// A queue of lines for a file, terminal or pipe. It has limited size and never blocks, so that signals and
// other streams are also served.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace farandole {

class OutputQueue {
 public:
  // Other processes may write to `descriptor` as well, because each write contains whole lines if they
  // fit into PIPE_BUF.
  explicit OutputQueue(int descriptor) : descriptor_(descriptor) {}

  void push(std::string_view lines);
  // From now on nobody waits for a reader that takes nothing for `patience`. push() then leaves lines out
  // while the queue is full, and later tells the reader how many. `where` is the end of that message.
  void go_on(std::string_view where);
  static constexpr std::chrono::milliseconds patience{1000};
  // Returns false if no further input may be read, because the queue is full. Time alone can change this.
  bool accepts() const { return !full() || leaves_out(); }
  bool empty() const { return pending_.size() == written_; }
  bool broken() const { return broken_; }         // The reader is gone; further bytes are dropped.
  int descriptor() const { return descriptor_; }  // For poll(POLLOUT).
  // Writes what the reader takes now. Lines for a file on a full disk are dropped and counted.
  void write_some();
  std::int64_t lost() const { return lost_; }
  // Call this at the end of the input: tells how many lines were left out.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t capacity = 1 << 20;

  bool full() const { return pending_.size() - written_ > capacity; }
  bool leaves_out() const { return goes_on_ && full() && Clock::now() >= taken_at_ + patience; }

  const int descriptor_;
  std::string pending_;
  std::size_t written_ = 0;
  Clock::time_point taken_at_;
  bool broken_ = false;
  bool goes_on_ = false;
  std::string where_;
  std::int64_t left_out_ = 0;  // Lines that the reader does not know of.
  std::int64_t lost_ = 0;
};

}  // namespace farandole
