// Passes one stream of a supervised program, line by line, to the launcher and to the rank's log.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "farandole/launch/output/line_formatter.h"
#include "farandole/launch/output/line_splitter.h"
#include "farandole/launch/output/output_queue.h"

namespace farandole {

class StreamRelay {
 public:
  // `source`: read end of the program's pipe; reads do not block. `prefix`: text in front of
  // displayed lines; an empty function means none. `log`: stream for lines with their time, or
  // nullptr; it must outlive the relay.
  StreamRelay(OwnedDescriptor source, OutputChannel& destination, LineFormatter::Mark prefix,
              std::ostream* log);

  int source() const { return source_.get(); }  // -1 after the end of the stream.
  // If this is true although the queue is full, new lines get only into the log, and the
  // reader gets their number.
  bool wants_input() const { return source_.get() >= 0 && (!queue_.full() || leaves_out()); }
  // Returns whether time alone can change wants_input().
  bool waits() const { return source_.get() >= 0 && goes_on_ && queue_.full() && !leaves_out(); }
  // From now on the program does not wait for a reader that takes nothing for `patience`. This is always so
  // if there is a log.
  void go_on() { goes_on_ = true; }
  static constexpr std::chrono::milliseconds patience{1000};
  OutputQueue& queue() { return queue_; }
  // Returns the last complete lines, a few KiB, without redrawn lines.
  std::string last_lines() const;
  // Reads what fits into one buffer. Returns false if no data is available or the stream has ended.
  bool read_some();
  // Ends the input: passes on the last line, even without a newline.
  void finish();

 private:
  bool leaves_out() const { return goes_on_ && queue_.full() && queue_.stalled(patience); }
  void take(std::string_view piece);
  void show(std::string_view text);
  void tell_of_left_out();
  void keep(std::string_view piece);

  OwnedDescriptor source_;
  OutputQueue queue_;
  std::ostream* log_;
  bool goes_on_;
  bool leaves_out_ = false;  // During one call of read_some().
  std::int64_t left_out_ = 0;
  std::optional<LineFormatter> visible_;
  LineFormatter logged_;
  std::string last_;
  LineSplitter splitter_;
};

}  // namespace farandole
