// Passes one stream of a supervised program, line by line, to the launcher and to the rank's log.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "farandole/base/files/file_bytes.h"
#include "farandole/launch/output/lines.h"
#include "farandole/launch/output/marked_lines.h"
#include "farandole/launch/output/output_queue.h"

namespace farandole {

class StreamRelay {
 public:
  // `source`: read end of the program's pipe; reads do not block. `to_launcher` gets lines with this mark.
  // `prefix`: text in front of displayed lines; an empty function means none. `log`: stream for lines
  // with their time, or nullptr. Both destinations must outlive the relay.
  StreamRelay(OwnedDescriptor source, OutputQueue& to_launcher, LineMark mark, LineFormatter::Mark prefix,
              std::ostream* log);

  int source() const { return source_.get(); }  // -1 after the end of the stream.
  // Returns the last complete lines, a few KiB, without redrawn lines.
  std::string last_lines() const;
  // Reads what fits into one buffer. Returns false if no data is available or the stream has ended.
  bool read_some();
  // Ends the input: passes on the last line, even without a newline.
  void finish();

 private:
  void take(std::string_view piece);
  void show(std::string_view text) { to_launcher_.push(mark_lines(mark_, text)); }
  void keep(std::string_view piece);

  OwnedDescriptor source_;
  OutputQueue& to_launcher_;
  const LineMark mark_;
  std::ostream* log_;
  std::optional<LineFormatter> visible_;
  LineFormatter logged_;
  std::string last_;
  LineSplitter splitter_;
};

}  // namespace farandole
