// Joins the pieces of a LineSplitter into lines with a mark in front, for --prefix and for log files. Each
// stream has its own formatter.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

// Returns the local time of day, for example "12:34:56.789".
std::string time_of_day();

class LineFormatter {
 public:
  // Returns the text in front of a line; called for each line. "" means no text.
  using Mark = std::function<std::string()>;
  // How to write a line that the program redraws with "\r": `each` writes every state as a separate line;
  // `last` writes only the last state, which a terminal would show at the end.
  enum class Redraws { each, last };

  LineFormatter(Mark mark, Redraws redraws) : mark_(std::move(mark)), redraws_(redraws) {}

  // Returns the lines, each with its '
  // ', that this piece completes; "" if it completes none.
  std::string format(std::string_view piece);
  // Returns the text that is still held. Call this at the end of the output.
  std::string finish();

 private:
  std::string line(std::string_view text) const;

  Mark mark_;
  Redraws redraws_;
  bool redrawn_ = false;  // A lone '\r' has arrived since the last '\n'.
  bool shown_ = false;    // A state of the current line has been returned.
  std::string held_;      // Newest state of the current line that has not been returned.
};

}  // namespace farandole
