// How far a run has come, also if it was killed.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace farandole {

// Units: nanoseconds of CLOCK_REALTIME; 0 if unknown.
struct RunProgress {
  std::optional<std::int64_t> step;  // steps that are done; no value if nothing tells it
  std::int64_t begin_ns = 0;         // The start that is recorded began.
  std::int64_t end_ns = 0;           // The last sign of work.
  // The median time from step to step of those that are recorded last.
  std::optional<double> step_ms = std::nullopt;
  bool recorded = false;          // There is a flight recorder.
  bool closed = false;            // It says that its rank has ended.
  bool counts_own_steps = false;  // The program does not number its steps; each start begins with 0.
};

// Reads the end of the flight recorder of rank 0, or of the lowest rank that has one, which every step
// reaches, and the end of metrics.jsonl, which only logged steps reach. Damaged files count as absent. Call
// this before keep_earlier_start() (base/run/earlier_starts.h), which moves the recorder.
RunProgress read_run_progress(const std::filesystem::path& run);

}  // namespace farandole
