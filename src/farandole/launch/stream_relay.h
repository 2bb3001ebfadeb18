// Passes one stream of a supervised program, line by line, to the launcher and to the rank's log.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "farandole/launch/line_formatter.h"
#include "farandole/launch/line_splitter.h"
#include "farandole/launch/output_queue.h"

namespace farandole {

class StreamRelay {
 public:
  // `source`: read end of the program's pipe; reads do not block. `prefix`: text in front of
  // displayed lines; an empty function means none. `log`: stream for lines with their time, or
  // nullptr; it must outlive the relay.
  StreamRelay(OwnedDescriptor source, OutputChannel& destination, LineFormatter::Mark prefix,
              std::ostream* log);

  int source() const { return source_.get(); }  // -1 after the end of the stream.
  bool wants_input() const { return source_.get() >= 0 && !queue_.full(); }
  OutputQueue& queue() { return queue_; }
  // Returns the last complete lines, a few KiB, without redrawn lines.
  std::string last_lines() const;
  // Reads what fits into one buffer. Returns false if no data is available or the stream has ended.
  bool read_some();
  // Ends the input: passes on the last line, even without a newline.
  void finish();

 private:
  void take(std::string_view piece);
  void keep(std::string_view piece);

  OwnedDescriptor source_;
  OutputQueue queue_;
  std::ostream* log_;
  std::optional<LineFormatter> visible_;
  LineFormatter logged_;
  std::string last_;
  LineSplitter splitter_;
};

}  // namespace farandole
