// Shows the progress of a training run: a bar on a terminal, plain lines otherwise. Used on rank 0.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farandole/base/run/model_rate.h"

namespace farandole {

class Progress {
 public:
  // `total_steps` counts the steps of the whole run. The width comes from the terminal, or from
  // FARANDOLE_TERMINAL_COLUMNS. `farandole run` sets this variable because ranks write into a pipe. Without
  // `shows_steps`, update() shows nothing.
  Progress(std::int64_t first_step, std::int64_t total_steps, bool shows_steps = true);

  struct State {
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    double loss = 0;
    double samples_per_s = 0;
    std::optional<ModelRate> rate{};
  };
  // Redraws the bar at most ten times per second; prints a line at most every two seconds.
  void update(const State& state);
  // Prints a permanent line above the bar.
  void say(const std::string& line);
  // Ends the bar.
  void finish();

 private:
  std::string bar(const State& state) const;
  double seconds_left(std::int64_t step) const;

  std::int64_t first_step_;
  std::int64_t total_steps_;
  bool shows_steps_;
  int columns_;  // 0: not a terminal.
  std::int64_t started_ns_;
  std::int64_t shown_ns_ = 0;
  std::string bar_;
};

}  // namespace farandole
