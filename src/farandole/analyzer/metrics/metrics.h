// The figures of a run; docs/metrics.md has their definitions. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/collectives.h"
#include "farandole/analyzer/metrics/critical_path.h"
#include "farandole/analyzer/metrics/gpu_work.h"
#include "farandole/analyzer/metrics/mpi_calls.h"
#include "farandole/analyzer/metrics/window.h"
#include "farandole/analyzer/model/phases.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/statistics/statistics.h"
#include "farandole/base/run/remedies.h"

namespace farandole {

// The use of a rank's time, as parts whose sum is the window.
// `core`: the training thread could run, but no core was free for it. `copies`: of GPUs, without a kernel.
enum class Share : std::uint8_t {
  compute,
  core,
  waiting,
  transfer,
  copies,
  data,
  checkpoint,
  evaluation,
  other,
  idle
};
inline constexpr std::size_t share_count = 10;
// Nanoseconds; waiting and transfer count only if exposed.
using Shares = std::array<std::int64_t, share_count>;

struct GpuTimes {  // Nanoseconds. The sum of compute, communication_only, memcpy_only and idle is `window`.
  // The window of the run. For traces of PyTorch's profiler it is, as in Holistic Trace Analysis, the time
  // from the start of this rank's first kernel or copy to the end of its last.
  std::int64_t window = 0;
  std::int64_t kernels = 0;
  std::int64_t compute = 0;
  std::int64_t communication_only = 0;
  std::int64_t memcpy_only = 0;
  std::int64_t idle = 0;
  IdleTimes idle_causes{};  // Their sum is `idle`.
  // Time in which kernels or copies ran that were launched in a phase. The times of two phases may overlap.
  PhaseTimes by_phase{};
};

// Sums over all ranks with GPU times, as fractions of their windows; nullopt if the windows are empty.
struct GpuShares {
  double utilization = 0;
  double compute = 0, communication_only = 0, memcpy_only = 0, idle = 0;
  std::array<double, idle_cause_count> idle_causes{};
  std::array<double, phase_count> by_phase{};
};

// Nanoseconds in the window. compute + communication - overlap + other + idle = recorded; exposed
// = communication - overlap. If a rank has several GPUs, its times are means over them.
struct RankMetrics {
  int rank = 0;
  std::string host;
  std::string process;             // Which process or GPU it is; "" if the trace has ranks.
  std::int64_t recorded = 0;       // The part of the window that this rank recorded.
  bool clock_known = true;         // False: the trace records that the clock could not be aligned.
  std::int64_t compute = 0;        // |U|, without the time in which the training thread had no core
  std::int64_t communication = 0;  // |M|
  std::int64_t overlap = 0;        // |M ∩ U|
  std::int64_t exposed = 0;        // |M \ U|
  std::int64_t other = 0;          // Outside U and M, copies of GPUs and all phases; and core_wait.
  std::int64_t core_wait = 0;      // The training thread could run, but had no core.
  bool core_wait_known = false;    // The trace records it.
  std::int64_t idle = 0;           // Waiting outside M, and time that no span covers.
  std::int64_t waiting = 0;  // Part of M: waiting for the last rank; waiting + transfer = communication.
  std::int64_t transfer = 0;
  PhaseTimes phases{};
  Shares shares{};
  std::vector<int> cores;       // On which the training thread was seen.
  std::string idle_cores;       // Cores of the job on this node that nothing has used: "2-7".
  std::optional<GpuTimes> gpu;  // Sums over its GPUs.
  std::vector<std::pair<std::int64_t, GpuTimes>> devices;  // If it has several GPUs, each of them.
  // For each kept step, from the end of the previous kept step to its end.
  std::vector<PhaseTimes> step_phases;
  // For each kept step with a collective: the latest arrival relative to the first rank, and the kept step.
  std::vector<double> step_lateness_ms;
  std::vector<std::size_t> lateness_steps;
  std::vector<Interval> training_waits;  // When the training thread waits for or runs collectives.
  std::int64_t last_end = 0;  // End of its last step in the window; without steps, the end of the window.
};

// Sums over all ranks in ns, from the start of one kept step to the start of the next.
struct StepTotals {
  double compute = 0;
  double communication = 0;
  double overlap = 0;
  double waiting = 0;
  double kernels = 0;  // Of GPUs, including those of collectives.
};

struct RunMetrics {
  TraceSource source = TraceSource::farandole;
  ProgramKind kind = ProgramKind::program;  // Decides in which words to advise.
  Window window;
  std::vector<RankMetrics> ranks;  // The measured ranks.
  std::size_t world_size = 0;      // Ranks of the run; larger than ranks.size() if the trace has a sample.
  CollectiveMatches matches;
  std::vector<CollectiveRow> collectives;
  std::vector<MpiCallRow> mpi_calls;  // MPI calls of the program, if recorded.
  std::vector<KernelRow> kernels;     // Of GPUs, and their copies.
  std::vector<CopyRow> copies;
  std::size_t nodes = 0;
  double clock_floor_ms = 0;  // Smaller differences between ranks may be clock errors.
  std::string no_gpu;         // Why there is no GpuTimes.
  std::string no_compute;     // Why the ranks' compute is unknown; "" if it is known.
  std::string no_waiting;     // Why waiting and transfer cannot be separated; "" if they can.
  std::string no_alignment;   // Which ranks' clocks are unknown; "": none.
  Figure throughput;          // Samples per second.
  Figure steps_per_s;
  Figure overlap;  // Over all ranks.
  Figure parallel_efficiency, load_balance, communication_efficiency;
  Figure serialisation, transfer_efficiency;  // Their product is the communication efficiency.
  CriticalPath critical_path;
  std::vector<StepTotals> steps;  // One entry per kept step.
  // Intervals from batches of steps. The last five are intervals of fractions of the
  // window and of gpu_shares().
  std::optional<Range> throughput_ci95, overlap_ci95, parallel_ci95;
  std::optional<Range> communication_ci95, exposed_ci95, waiting_ci95, transfer_ci95, utilization_ci95;
  std::vector<std::string> warnings;  // Warnings of the model and of the metrics.

  // Number of ranks of the run.
  std::size_t size() const { return std::max(world_size, ranks.size()); }
  bool is_sample() const { return size() > ranks.size(); }
  // Sum over all ranks, in the window.
  double hours() const { return window_ns() * 1e-9 / 3600 * static_cast<double>(size()); }

  double window_ns() const { return static_cast<double>(window.length()); }
  // Mean over ranks of a part of what they recorded, from 0 to 1; unknown if the window is empty. Waiting and
  // transfer use only ranks with known clocks. If compute is unknown, figures that depend on it, and phases
  // without spans, are unknown too.
  Figure fraction(std::int64_t RankMetrics::*part) const;
  Figure phase_fraction(std::size_t phase) const;
  // The same for one rank, in seconds.
  Figure seconds(const RankMetrics& rank, std::int64_t RankMetrics::*part) const;
  Figure phase_seconds(const RankMetrics& rank, std::size_t phase) const;
  bool has_phases() const;          // True if some rank has phases.
  double share(Share share) const;  // 0 if the window is empty.
};

RunMetrics measure(const RunModel& run);

// Steps of measure(): the overlap and the efficiencies, from the figures of the ranks and the critical
// path; and then, after the throughput, their 95 % intervals, from the totals by step.
void add_efficiencies(RunMetrics& metrics);
void add_intervals(const RunFacts& facts, RunMetrics& metrics);

inline constexpr const char* empty_window = "the window is empty";  // why a share of it is unknown

std::optional<GpuShares> gpu_shares(const RunMetrics& metrics);
std::optional<GpuShares> gpu_shares(const std::vector<const GpuTimes*>& times);

// Returns the last kept step that has begun at `time`.
std::optional<std::size_t> step_at(const Window& window, std::int64_t time);

// A collective that ends at most this long after a wait, or after the start of another collective, may have
// ended the wait, because threads wake up and spans close with a delay.
inline constexpr std::int64_t wake_up_ns = 50'000;

}  // namespace farandole
