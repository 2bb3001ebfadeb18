// Numbers and marks the steps of a program that does not do it itself: a span from the end of an optimizer's
// step() to the end of the next one, with the number of steps before it. So status, doctor and analyzer know
// the steps of each program. Does nothing that the program does itself, by Session::set_step(), by a span of
// category step around step(), or by a Run, which does both after step(). Used by job.cc.
//
// Of several optimizers, the first one counts. Its training may be over while it exists: if others make more
// than twice as many steps as ever between two of its steps, the one that makes the last of them counts from
// now on, and all these steps have counted.
// Thread safety: call from the training thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class StepMarks {
 public:
  using SetStep = std::function<void(std::int64_t)>;

  void program_numbers_steps() { numbers_ = false; }
  void program_marks_steps() { marks_ = false; }

  // The first step begins at `now_ns`. Without this call, it has neither a number nor a mark.
  void begin_first(std::int64_t now_ns, const SetStep& set_step) {
    if (begin_ns_ != 0) return;
    begin_ns_ = now_ns;
    if (numbers_) set_step(0);
  }
  // An optimizer has ended its step(). Returns how many steps have counted by that.
  int end(Timeline& timeline, const void* optimizer, std::int64_t end_ns, const SetStep& set_step) {
    if (optimizer_ == nullptr) optimizer_ = optimizer;
    if (optimizer_ == optimizer) {
      most_others_ = std::max(most_others_, others_.size());
      others_.clear();
    }
    others_.push_back(end_ns);
    if (optimizer_ != optimizer && others_.size() <= 2 * most_others_) return 0;
    optimizer_ = optimizer;
    const auto ends = std::exchange(others_, {});
    for (const auto end : ends) count(timeline, end, set_step);
    return static_cast<int>(ends.size());
  }
  // The optimizer does not exist any more.
  void forget(const void* optimizer) {
    if (optimizer_ == optimizer) optimizer_ = nullptr;
  }

 private:
  void count(Timeline& timeline, std::int64_t end_ns, const SetStep& set_step) {
    bool enclosed = false;
    for (const auto* span = current_span.innermost.load(std::memory_order_relaxed); span != nullptr;
         span = span->outer())
      enclosed |= span->category() == Category::step;
    if (marks_ && !enclosed && begin_ns_ != 0 && timeline.step() >= 0)
      timeline.span(Category::step, "step", begin_ns_, end_ns);
    begin_ns_ = end_ns;
    ++done_;
    if (!numbers_) return;
    if (done_ == 2) timeline.set_metadata(recorder::steps_fact, recorder::counted_steps);
    set_step(done_);
  }

  const void* optimizer_ = nullptr;  // the one that counts
  bool numbers_ = true, marks_ = true;
  std::int64_t done_ = 0;
  std::int64_t begin_ns_ = 0;         // of the step that has not ended
  std::vector<std::int64_t> others_;  // when others have ended their steps, since the last one that counts
  std::size_t most_others_ = 4;       // the most of them so far, but enough for a start
};

}  // namespace farandole
