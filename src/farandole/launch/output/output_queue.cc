#include "farandole/launch/output/output_queue.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace farandole {
namespace {

// Returns as much of `bytes` as fits, up to the end of a line if possible.
std::string_view whole_lines(std::string_view bytes, std::size_t fits) {
  if (bytes.size() <= fits) return bytes;
  const auto head = bytes.substr(0, fits);
  const auto end = head.rfind('\n');
  return end == std::string_view::npos ? head : head.substr(0, end + 1);
}

}  // namespace

void OutputQueue::push(std::string_view lines) {
  if (broken_) return;
  if (leaves_out()) {
    left_out_ += std::count(lines.begin(), lines.end(), '\n');
    return;
  }
  if (empty()) taken_at_ = Clock::now();
  finish();
  pending_.append(lines);
}

void OutputQueue::go_on(std::string_view where) {
  goes_on_ = true;
  where_ = where;
}

void OutputQueue::finish() {
  if (const auto lines = std::exchange(left_out_, 0); lines > 0)
    pending_ += fmt::format("farandole run: {} lines are left out here, because the output was not read{}\n",
                            lines, where_);
}

void OutputQueue::write_some() {
  if (empty()) return;
  // The descriptor is not set to O_NONBLOCK, because other processes share the open file. A pipe that poll
  // reports as writable accepts PIPE_BUF bytes without blocking.
  pollfd ready{descriptor_, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 0) return;
  const auto lines = whole_lines(std::string_view(pending_).substr(written_), PIPE_BUF);
  const auto written = ::write(descriptor_, lines.data(), lines.size());
  // A file that cannot grow now must not end a job. Its lines are lost until there is space again.
  const bool lost = written < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG);
  if (written < 0 && (errno == EAGAIN || errno == EINTR)) return;
  broken_ = written < 0 && !lost;
  if (lost) lost_ += std::count(lines.begin(), lines.end(), '\n');
  taken_at_ = Clock::now();
  written_ = broken_ ? pending_.size() : written_ + (lost ? lines.size() : static_cast<std::size_t>(written));
  // The rest is moved to the front only after most of the buffer is written. Therefore the cost
  // of copying stays linear.
  if (written_ * 2 >= pending_.size()) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace farandole
