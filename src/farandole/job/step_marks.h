// Marks the steps of a program that does not do it itself: a span from the end of an optimizer's step() to
// the end of the next one, with the number of steps before it. So status, doctor and analyzer know the steps
// of each program. Does nothing that the program does itself, by Session::set_step(), by a span of category
// step around step(), or by a Run, which does both after step(). The first step has no mark, because the
// program may do so after it. Used by job.cc.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <optional>

#include "farandole/base/clock.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class StepMarks {
 public:
  void program_numbers_steps() { numbers_ = false; }
  void program_marks_steps() { marks_ = false; }

  // An optimizer begins and ends its step(). Of several optimizers, the first one counts. Both return the
  // number of the step from now on, or nothing if it does not change.
  std::optional<std::int64_t> begin(Timeline& timeline, const void* optimizer) {
    if (optimizer_ == nullptr) optimizer_ = optimizer;
    if (optimizer_ != optimizer) return std::nullopt;
    enclosed_ = false;
    for (const auto* span = current_span.innermost.load(std::memory_order_relaxed); span != nullptr;
         span = span->outer())
      enclosed_ |= span->category() == Category::step;
    if (!numbers_ || done_ != 1) return std::nullopt;
    timeline.set_metadata(recorder::steps_fact, recorder::counted_steps);
    return done_;
  }
  std::optional<std::int64_t> end(Timeline& timeline, const void* optimizer) {
    if (optimizer_ != optimizer) return std::nullopt;
    const auto now = now_ns();
    if (marks_ && !enclosed_ && done_ > 0 && timeline.step() >= 0)
      timeline.span(Category::step, "step", ended_ns_, now);
    ended_ns_ = now;
    return ++done_ > 1 && numbers_ ? std::optional(done_) : std::nullopt;
  }
  // The optimizer does not exist any more.
  void forget(const void* optimizer) {
    if (optimizer_ == optimizer) optimizer_ = nullptr;
  }

 private:
  const void* optimizer_ = nullptr;  // the one that counts
  bool numbers_ = true, marks_ = true, enclosed_ = false;
  std::int64_t done_ = 0;
  std::int64_t ended_ns_ = 0;  // the newest of these
};

}  // namespace farandole
