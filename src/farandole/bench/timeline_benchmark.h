// Measures the recorder, compared with the clock reads that it needs, and the merge of a synthetic run.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace farandole {

struct TimelineBenchmarkOptions {
  std::filesystem::path folder;  // For the recorder files, which are deleted afterwards.
  int repetitions = 200;         // Repetitions of each measurement of a span.
  int merge_ranks = 4;
  int merge_events = 400'000;  // Per rank.
  int kills = 200;
};

// Each span is begun and ended. Medians over the repetitions; the measurements alternate.
struct SpanCost {
  double clock_pair_ns = 0;  // Two clock reads, the minimum cost of a span.
  double span_ns = 0;        // The span is recorded.
  double disabled_ns = 0;    // The span is neither recorded nor watched.
  double watched_ns = 0;     // The span is not recorded, but kept for stall reports.
  // 99.9 % of the spans took at most this time; each span is timed separately. Medians over
  // turns of 20,000 spans.
  double clock_pair_p999_ns = 0;
  double span_p999_ns = 0;       // Measured from the first span of a new recorder.
  double all_spans_p999_ns = 0;  // Over all turns together.
};

// Totals over all traces: spans, collectives, counters and flows of a run. All files are in the page cache.
struct MergeCost {
  std::uint64_t events = 0;
  double events_per_s = 0;         // Per second of processor time, that is, on one core.
  double wall_events_per_s = 0;    // Per second of wall time, on all cores of the machine.
  double trace_bytes = 0;          // Compressed.
  std::optional<double> peak_mib;  // Memory that the merge added to the process; unknown on old kernels.
};

SpanCost measure_spans(const TimelineBenchmarkOptions& options);
MergeCost measure_merge(const TimelineBenchmarkOptions& options);
// Returns the processor time of one sample of CounterSampler. Units: microseconds.
double measure_counters(const TimelineBenchmarkOptions& options);

// What a recorder file contains after its process was killed.
struct KillLoss {
  int kills = 0;            // Number of processes killed with SIGKILL at random times.
  int sound_traces = 0;     // Cases in which the salvaged trace is undamaged and complete.
  double most_lost_us = 0;  // Longest time from the last recorded event to the last event that had ended.
};

// `folder` is for the recorder files, which are deleted afterwards.
// Throws: Error if a process cannot be started.
KillLoss measure_kills(const std::filesystem::path& folder, int kills);

// Cost of an MPI_Send to MPI_PROC_NULL, which only checks its arguments. Medians over the
// repetitions; the measurements alternate.
struct MpiCallCost {
  double plain_ns = 0;     // Called by its PMPI_ name, as without the preloaded library.
  double passed_ns = 0;    // Through the library, while nothing is recorded.
  double recorded_ns = 0;  // Through the library, with bytes, tag and ranks recorded.
};

// Returns nullopt if the library for --trace-mpi is not in the folder of the program, or MPI cannot be
// initialized or has been finalized. If MPI is not initialized, this call initializes and finalizes it,
// which is possible only once; therefore this must be the last measurement. The recorder file is written
// to `folder` and deleted.
std::optional<MpiCallCost> measure_mpi_calls(const std::filesystem::path& folder, int repetitions);

}  // namespace farandole
