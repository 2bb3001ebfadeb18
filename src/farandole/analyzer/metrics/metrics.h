// The figures of a run as docs/metrics.md defines them. Plain values and functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/collectives.h"
#include "farandole/analyzer/metrics/mpi_calls.h"
#include "farandole/analyzer/metrics/phases.h"
#include "farandole/analyzer/metrics/window.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// Where a rank's time went: parts that add up to the window.
enum class Share : std::uint8_t { compute, waiting, transfer, data, checkpoint, evaluation, other, idle };
inline constexpr std::size_t share_count = 8;
using Shares =
    std::array<std::int64_t, share_count>;  // nanoseconds; waiting and transfer: only what is exposed

struct GpuTimes {  // nanoseconds; the last four add up to `window`
  // The run's window; of traces of PyTorch's profiler, as in Holistic Trace Analysis, from the start of this
  // rank's first kernel or copy to the end of its last.
  std::int64_t window = 0;
  std::int64_t kernels = 0;
  std::int64_t compute = 0;
  std::int64_t communication_only = 0;
  std::int64_t memcpy_only = 0;
  std::int64_t idle = 0;
  // When kernels or copies ran that were launched in a phase; those of two phases may overlap.
  PhaseTimes by_phase{};
  std::int64_t phase_unknown = 0;  // the same of those whose launch is not known
};

// Of all ranks that have any, as fractions of their windows together; nullopt where those are empty.
struct GpuShares {
  double utilization = 0;
  double compute = 0, communication_only = 0, memcpy_only = 0, idle = 0;
  std::array<double, phase_count> by_phase{};
};

// Nanoseconds within the window: compute + communication - overlap + other + idle = window, exposed =
// communication - overlap.
struct RankMetrics {
  int rank = 0;
  std::string host;
  bool clock_known = true;         // false: the trace says that it could not be aligned
  std::int64_t compute = 0;        // |U|
  std::int64_t communication = 0;  // |M|
  std::int64_t overlap = 0;        // |M ∩ U|
  std::int64_t exposed = 0;        // |M \ U|
  std::int64_t other =
      0;  // data, checkpoint, evaluation and what else the training thread does, outside of U and M
  std::int64_t idle = 0;     // waiting outside of M, and time that nothing covers
  std::int64_t waiting = 0;  // of M: for the last rank to arrive; waiting + transfer = communication
  std::int64_t transfer = 0;
  PhaseTimes phases{};
  Shares shares{};
  std::optional<GpuTimes> gpu;
  std::vector<PhaseTimes> step_phases;  // by kept step, from the end of the step before to its end
  std::vector<double>
      step_lateness_ms;  // by kept step that has a collective: the latest own arrival behind the first rank's
  std::vector<std::size_t> lateness_steps;  // which kept steps those are
  std::vector<Interval> training_waits;     // when the training thread waits for or runs collectives
  std::int64_t last_end = 0;                // of its steps in the window; without steps the window's end
};

// Of all ranks together, in ns, within one kept step's tile: from its start to the next one's.
struct StepTotals {
  double compute = 0;
  double communication = 0;
  double overlap = 0;
  double waiting = 0;
  double kernels = 0;  // of GPUs, also those of collectives
};

struct RunMetrics {
  TraceSource source = TraceSource::farandole;
  Window window;
  std::vector<RankMetrics> ranks;  // that were measured
  std::size_t world_size = 0;      // ranks of the run: more where the trace has a sample
  CollectiveMatches matches;
  std::vector<CollectiveRow> collectives;
  std::vector<MpiCallRow> mpi_calls;  // of the program itself, where they were recorded
  std::size_t nodes = 0;
  double clock_floor_ms = 0;  // differences between ranks below it may be the clocks'
  std::string no_gpu;         // why there is no GpuTimes
  std::string no_compute;     // why nothing is known of what the ranks compute; "" where it is
  std::string no_waiting;     // why waiting and transfer cannot be told apart; "" where they can
  std::string no_alignment;   // which ranks' clocks are unknown; "": none
  Figure throughput;          // samples/s
  Figure overlap;             // of all ranks together
  Figure parallel_efficiency, load_balance, communication_efficiency;
  Figure serialisation, transfer_efficiency;  // communication efficiency is their product
  std::optional<double> replay_error;  // of the window's length, when replayed with the network as it was
  std::vector<StepTotals> steps;       // by kept step
  // From batches of steps; the last five of fractions of the window, and of gpu_shares().
  std::optional<Range> throughput_ci95, overlap_ci95, parallel_ci95;
  std::optional<Range> communication_ci95, exposed_ci95, waiting_ci95, transfer_ci95, utilization_ci95;
  std::vector<std::string> warnings;  // the model's and the metrics' own

  // Of the run.
  std::size_t size() const { return std::max(world_size, ranks.size()); }
  bool is_sample() const { return size() > ranks.size(); }
  // Of all ranks together, over the window.
  double hours() const { return window_ns() * 1e-9 / 3600 * static_cast<double>(size()); }

  double window_ns() const { return static_cast<double>(window.length()); }
  // Mean over ranks of a part of the window, 0 to 1; unknown where the window is empty. Waiting and transfer
  // are those of the ranks whose clocks are known. Where nothing is known of compute, nor is what depends on
  // it, nor that there is none of a phase.
  Figure fraction(std::int64_t RankMetrics::*part) const;
  Figure phase_fraction(std::size_t phase) const;
  // The same of one rank, in seconds.
  Figure seconds(const RankMetrics& rank, std::int64_t RankMetrics::*part) const;
  Figure phase_seconds(const RankMetrics& rank, std::size_t phase) const;
  bool has_phases() const;          // some rank has any
  double share(Share share) const;  // 0 where the window is empty
};

RunMetrics measure(const RunModel& run);

std::optional<GpuShares> gpu_shares(const RunMetrics& metrics);
std::optional<GpuShares> gpu_shares(const GpuTimes& times);  // of one rank
std::optional<GpuShares> gpu_shares(const std::vector<const GpuTimes*>& times);

// Which kept step a time belongs to: the last one that has begun.
std::optional<std::size_t> step_at(const Window& window, std::int64_t time);

// A collective that ends this much behind a wait, or another's start, may still be what ended it: threads
// wake up, and spans are closed, a little late.
inline constexpr std::int64_t wake_up_ns = 50'000;

}  // namespace farandole
