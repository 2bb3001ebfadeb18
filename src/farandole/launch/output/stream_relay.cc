#include "farandole/launch/output/stream_relay.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace farandole {
namespace {

constexpr std::size_t most_kept = 8192;

}  // namespace

StreamRelay::StreamRelay(OwnedDescriptor source, OutputQueue& to_launcher, LineMark mark,
                         LineFormatter::Mark prefix, std::ostream* log)
    : source_(std::move(source)),
      to_launcher_(to_launcher),
      mark_(std::move(mark)),
      log_(log),
      logged_([] { return "[" + time_of_day() + "] "; }, LineFormatter::Redraws::last),
      splitter_([this](std::string_view piece) { take(piece); }) {
  if (prefix) visible_.emplace(std::move(prefix), LineFormatter::Redraws::each);
  ::fcntl(source_.get(), F_SETFL, O_NONBLOCK);
}

void StreamRelay::take(std::string_view piece) {
  if (visible_) {
    show(visible_->format(piece));
  } else {
    show(piece);
  }
  if (log_ != nullptr) {
    log_->clear();  // The disk may have space again.
    *log_ << logged_.format(piece);
  }
  if (!piece.ends_with('\r')) keep(piece);
}

void StreamRelay::keep(std::string_view piece) {
  last_ += piece;
  if (last_.size() > 4 * most_kept) last_.erase(0, last_.size() - most_kept);
}

std::string StreamRelay::last_lines() const {
  if (last_.size() <= most_kept) return last_;
  const auto line_end = last_.find('\n', last_.size() - most_kept);
  return line_end == std::string::npos ? last_.substr(last_.size() - most_kept) : last_.substr(line_end + 1);
}

bool StreamRelay::read_some() {
  std::array<char, 65536> buffer;
  const auto got = ::read(source_.get(), buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) {
    finish();
    return false;
  }
  splitter_.feed({buffer.data(), static_cast<std::size_t>(got)});
  if (log_ != nullptr) log_->flush();
  return true;
}

void StreamRelay::finish() {
  if (source_.get() < 0) return;
  source_.reset();
  splitter_.finish();
  if (visible_) show(visible_->finish());
  if (log_ == nullptr) return;
  log_->clear();
  *log_ << logged_.finish() << std::flush;
}

}  // namespace farandole
