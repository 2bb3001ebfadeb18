#include "farandole/trainer/progress.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

constexpr std::int64_t redraw_ns = 100'000'000;
constexpr std::int64_t line_ns = 2'000'000'000;

int terminal_columns() {
  if (const char* told = std::getenv("FARANDOLE_TERMINAL_COLUMNS")) return std::max(0, std::atoi(told));
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col > 0 ? size.ws_col : 80;
}

std::string speed(const Progress::State& state) {
  const auto samples = fmt::format("{:.0f} samples/s", state.samples_per_s);
  return state.rate ? samples + "  " + state.rate->text() : samples;
}

}  // namespace

Progress::Progress(std::int64_t first_step, std::int64_t total_steps, bool shows_steps)
    : first_step_(first_step),
      total_steps_(total_steps),
      shows_steps_(shows_steps),
      columns_(terminal_columns()),
      started_ns_(now_ns()) {}

double Progress::seconds_left(std::int64_t step) const {
  if (step <= first_step_) return 0;
  return seconds_since(started_ns_) / static_cast<double>(step - first_step_) *
         static_cast<double>(total_steps_ - step);
}

std::string Progress::bar(const State& state) const {
  const std::string text = fmt::format(" {}/{} steps  {}  loss {:.4f}  {} left", state.step, total_steps_,
                                       speed(state), state.loss, describe_clock(seconds_left(state.step)));
  const int width = columns_ - static_cast<int>(text.size()) - 3;
  if (width < 10) return text.substr(1, static_cast<std::size_t>(std::max(0, columns_ - 1)));
  const auto filled = static_cast<int>(
      std::min<std::int64_t>(width, width * state.step / std::max<std::int64_t>(1, total_steps_)));
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(width - filled), '.') + "]" + text;
}

void Progress::update(const State& state) {
  if (!shows_steps_) return;
  const auto now = now_ns();
  if (now - shown_ns_ < (columns_ > 0 ? redraw_ns : line_ns)) return;
  shown_ns_ = now;
  if (columns_ == 0) {
    fmt::print("step {}/{}  epoch {}  loss {:.4f}  {}  {} left\n", state.step, total_steps_, state.epoch + 1,
               state.loss, speed(state), describe_clock(seconds_left(state.step)));
  } else {
    bar_ = bar(state);
    fmt::print("\r\x1b[K{}", bar_);
  }
  std::fflush(stdout);
}

void Progress::say(const std::string& line) {
  if (columns_ > 0 && !bar_.empty()) fmt::print("\r\x1b[K");
  fmt::print("{}\n{}", line, bar_);
  std::fflush(stdout);
}

void Progress::finish() {
  if (bar_.empty()) return;
  fmt::print("\r\x1b[K");
  bar_.clear();
  std::fflush(stdout);
}

}  // namespace farandole
