// Turns the pieces of a LineSplitter into lines with a mark in front, for --prefix and for log files. One
// formatter belongs to one stream and one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

// Local time of day, "12:34:56.789".
std::string time_of_day();

class LineFormatter {
 public:
  // What stands in front of a line, asked for each; "" for nothing.
  using Mark = std::function<std::string()>;
  // Of a line that is redrawn with "\r": each state as a line of its own, or only the last, as a terminal
  // would leave it.
  enum class Redraws { each, last };

  LineFormatter(Mark mark, Redraws redraws) : mark_(std::move(mark)), redraws_(redraws) {}

  // The lines, each with its '\n', that this piece completes; "" for none.
  std::string format(std::string_view piece);
  // At the end of the output: what was held back.
  std::string finish();

 private:
  std::string line(std::string_view text) const;

  Mark mark_;
  Redraws redraws_;
  bool redrawn_ = false;  // a lone '\r' came since the last '\n'
  bool shown_ = false;    // a state of the present line was given out
  std::string held_;      // the newest state of the present line that was not
};

}  // namespace farandole
