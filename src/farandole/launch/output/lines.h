// Splits the output of a program, which arrives in pieces of any size, into lines, and puts marks in front of
// them. Each stream has objects of its own.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace farandole {

// The joined pieces equal the output byte for byte. A piece ends after "\n" or "\r\n", after a lone "\r"
// (progress bars use it), after max_bytes (this limits memory), and at the end of the output. While the
// program redraws a line with "\r", the text so far is also passed on at the end of each feed, so that the
// newest state of a progress bar is shown in time.
class LineSplitter {
 public:
  using Take = std::function<void(std::string_view)>;

  explicit LineSplitter(Take take, std::size_t max_bytes = 65536)
      : take_(std::move(take)), max_bytes_(max_bytes) {}

  void feed(std::string_view bytes);
  void finish();

 private:
  void take_pending();

  Take take_;
  std::size_t max_bytes_;
  std::string pending_;
  bool redrawn_ = false;  // A lone '\r' has arrived since the last '\n'.
};

// Returns the local time of day, for example "12:34:56.789".
std::string time_of_day();

// Joins the pieces of a LineSplitter into lines with a mark in front, for --prefix and for log files.
class LineFormatter {
 public:
  // Returns the text in front of a line; called for each line. "" means no text.
  using Mark = std::function<std::string()>;
  // How to write a line that the program redraws with "\r": `each` writes every state as a separate line;
  // `last` writes only the last state, which a terminal would show at the end.
  enum class Redraws { each, last };

  LineFormatter(Mark mark, Redraws redraws) : mark_(std::move(mark)), redraws_(redraws) {}

  // Returns the lines, each with its '\n', that this piece completes; "" if it completes none.
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
