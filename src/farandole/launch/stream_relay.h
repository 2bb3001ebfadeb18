// Carries one stream of a supervised program, line by line, to the launcher and to the rank's log. One thread
// owns it.
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
  // `source`: the read end of the program's pipe, read without waiting. `prefix`: what stands in front of
  // lines for people, empty function for none. `log`: where lines go with their time, nullptr for none;
  // outlives the relay.
  StreamRelay(OwnedDescriptor source, OutputChannel& destination, LineFormatter::Mark prefix,
              std::ostream* log);

  int source() const { return source_.get(); }  // -1 after its end
  bool wants_input() const { return source_.get() >= 0 && !queue_.full(); }
  OutputQueue& queue() { return queue_; }
  // The last whole lines that came, a few KiB; without those that were redrawn.
  std::string last_lines() const;
  // Reads what fits into one buffer; false: there is nothing now, or it was the end.
  bool read_some();
  // No more input: passes on the last line, also without its newline.
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
