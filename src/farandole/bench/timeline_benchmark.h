// Measures the recorder beside the clock reads it cannot do without, and the merge of a made-up run. Used by
// one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace farandole {

struct TimelineBenchmarkOptions {
  std::filesystem::path folder;  // for the recorders' files, which are removed again
  int repetitions = 200;         // of each measurement of a span
  int merge_ranks = 4;
  int merge_events = 400'000;  // of each rank
  int kills = 200;
};

// All spans are begun and ended; medians over the repetitions, which take turns.
struct SpanCost {
  double clock_pair_ns = 0;  // two clock reads, which is what a span cannot do without
  double span_ns = 0;        // recorded
  double disabled_ns = 0;    // neither recorded nor watched
  double watched_ns = 0;     // not recorded, but kept for reports of stalls
  // 99.9 % took at most this, each timed for itself: medians of turns of 20,000.
  double clock_pair_p999_ns = 0;
  double span_p999_ns = 0;       // from a new recorder's first on
  double all_spans_p999_ns = 0;  // of all turns together
};

// Of traces in all: the spans, collectives, counters and flows of a run, with all files in the page cache.
struct MergeCost {
  std::uint64_t events = 0;
  double events_per_s = 0;         // of processor time: by one core
  double wall_events_per_s = 0;    // by as many as the machine has
  double trace_bytes = 0;          // compressed
  std::optional<double> peak_mib;  // what the merge added to the process's memory; unknown on old kernels
};

SpanCost measure_spans(const TimelineBenchmarkOptions& options);
MergeCost measure_merge(const TimelineBenchmarkOptions& options);
// Microseconds of processor time for one sample of CounterSampler's.
double measure_counters(const TimelineBenchmarkOptions& options);

}  // namespace farandole
