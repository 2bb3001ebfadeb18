// Goodput: which part of the time that was allocated to a run brought it forward, over all of its starts.
// docs/metrics.md defines the parts. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "farandole/base/run/remedies.h"

namespace farandole {

// What is known about one start of a run, on rank 0; the ranks wait for each other in each step.
// Units: nanoseconds of CLOCK_REALTIME, and for durations nanoseconds.
struct RunStartTimes {
  std::string name;  // "starts/0001", for people
  std::int64_t ranks = 0;
  std::int64_t begin_ns = 0, end_ns = 0;  // of its launcher, or else of its records
  std::string allocation;         // two starts with the same text had the same allocation; "": unknown
  std::int64_t allocated_ns = 0;  // when that allocation began; 0 if unknown
  std::string unknown;            // why the fields below are not known; "" if they are
  std::int64_t worked_ns = 0;     // last sign of work
  std::optional<std::int64_t> first_step;  // number of its first step; no value if it did not come so far
  std::int64_t first_step_ns = 0;          // when that step began
  std::int64_t restoring_ns = 0;           // restored a checkpoint before that
  std::int64_t saving_ns = 0;  // waited for checkpoints since then and, if steps are lost, before lost_ns
  std::int64_t lost_ns = 0;    // from then on, a later start did its steps again; 0: none
  // Its steps are numbered from 0 in each start, so nobody knows which were done again.
  bool counts_own_steps = false;
  ProgramKind kind = ProgramKind::program;  // for advice
};

struct Goodput {
  enum Part : std::size_t { productive, lost_steps, restarts, saving, restoring, start_up, parts };
  std::array<double, parts> rank_s{};  // seconds × ranks; together they are the allocated time
  double between_jobs_s = 0;           // in the queue, or nobody had started the run again; not allocated
  std::size_t starts = 0;              // that are counted
  std::string left_out;                // which starts are not, and why; "" if all are
  std::string unknown;                 // why nothing is known; "" if something is

  double allocated_rank_s() const;
  double fraction(Part part) const;  // of the allocated time
};

// `starts` in their order.
Goodput goodput_of(std::span<const RunStartTimes> starts);

// "94.1 % = 100 − lost steps 1.2 − restarts 0.9 − saving 1.0 − restoring 0.5 − start-up 2.3; 3 starts". The
// rounded parts add up. "unknown: …" if it is unknown.
std::string goodput_text(const Goodput& goodput);
// "goodput" of the report and of `farandole status --format json`.
nlohmann::ordered_json goodput_json(const Goodput& goodput);

}  // namespace farandole
