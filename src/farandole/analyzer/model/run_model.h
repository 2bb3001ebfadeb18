// A run in the form that the metrics need: the activities of all threads of all ranks on one clock.
// Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/analyzer/model/interval.h"
#include "farandole/analyzer/model/packed_events.h"
#include "farandole/analyzer/model/training_log.h"
#include "farandole/base/run/remedies.h"
#include "farandole/base/run/run_json.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

// Only MPI functions, which the program calls itself, have names with this prefix.
inline bool is_mpi_call(std::string_view name) {
  return name.starts_with("MPI_");
}

struct StepSpan {
  std::int64_t number = 0;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

// A counter over the trace, which begins at 0 and whose samples come in the order of time.
class CounterUse {
 public:
  void add(std::int64_t time_ns, double value);
  double most() const { return most_; }
  // A sample is the mean of the time since the one before it, as a CounterSampler records rates.
  double mean() const { return last_ns_ > 0 ? sum_ / static_cast<double>(last_ns_) : most_; }

 private:
  std::int64_t last_ns_ = 0;
  double sum_ = 0, most_ = 0;
};

// The sum of a rate over time. Of many samples, every second one is forgotten.
class SummedRate {
 public:
  void add(std::int64_t time_ns, double percent);
  std::int64_t between(Interval time) const;  // in ns; 0 if there are no samples
  bool known() const { return !sums_.empty(); }

 private:
  double until(std::int64_t time_ns) const;

  std::vector<std::pair<std::int64_t, double>> sums_;  // From 0 to each sample.
};

// Those that a CounterSampler records and the report shows; without a value if there are no samples.
struct ResourceCounters {
  std::optional<CounterUse> cpu_percent, memory_mib, gpu_percent, gpu_memory_mib;
  SummedRate core_wait;    // The training thread could run but had no core.
  std::set<int> cores;     // On which it was seen.
  std::string idle_cores;  // Of the job on this node: "2-7".
};

// The events of one rank, packed. Memory grows with the number of phases and collectives, not with the spans
// inside them. Only one rank is unpacked at a time.
struct RankModel {
  int rank = 0;
  std::string host;
  // Ordered by number, each once; after a restart, the last step with a number counts.
  std::vector<StepSpan> steps;
  Interval extent{INT64_MAX, INT64_MIN};  // From the first start to the last end of the events below.
  PackedSpans packed_training;
  std::vector<PackedCollectives> packed_collectives;
  std::map<std::int64_t, PackedNamedSpans> packed_gpu;  // By device, ordered by start.
  std::string process;  // Which process or GPU it is, as another program's trace identifies it.
  // The collectives have the numbers that the program gave them, so that those of two captures
  // can be matched.
  bool has_sequences = true;
  // Remaining clock error after the alignment; nullopt if the clock of this rank could not be aligned.
  std::optional<double> clock_residual_us = 0.0;
  ResourceCounters resources;
  std::int64_t shift_ns = 0;  // The functions below add this shift; steps and extent already contain it.

  void shift_by(std::int64_t ns);
  // Returns the spans of the training thread with collectives and steps, without those
  // that cannot change innermost().
  std::vector<CategorySpan> training() const;
  std::vector<CollectiveSpan> collectives() const;  // Of all threads, ordered by start.
  // Kernels are gpu_kernel, kernels of NCCL are communication, and copies are gpu_memcpy. Ordered by start.
  std::vector<CategorySpan> gpu() const;
  std::vector<NamedSpan> gpu_of(std::int64_t device) const;
};

enum class TraceSource { farandole, kineto, horovod, nsys, xla, chrome };

struct RunModel {
  TraceSource source = TraceSource::farandole;
  RunFacts facts;
  TrainingLog log;
  TraceHeader header;
  std::vector<RankModel> ranks;  // Ordered by rank; only those in the trace.
  bool clocks_stated = true;     // The trace records its clock error.
  std::vector<std::string> names;
  std::uint64_t events = 0;
  std::string damage;          // Why the trace ends early; "" if it does not.
  std::string hidden_compute;  // Why the trace does not show what the ranks compute; "" if nothing hides it.
  std::vector<std::string> warnings;

  // Returns the number of ranks of the run, from run.json or else from the trace. The trace may have only
  // a sample of them.
  std::size_t world_size() const;
  void sort_ranks();
};

// Traces of other tools are of kind other.
ProgramKind kind_of_program(const RunModel& run);

// Shifts every rank to the clock of the first one by the ends of collectives, which all ranks leave at nearly
// the same time. The remaining error is stored as each rank's clock_residual_us. It is nullopt for ranks
// without common collectives, and for those with another number of collectives if the program did not number
// them; their steps are only placed beside those of the first rank.
void align_by_collectives(RunModel& run);

}  // namespace farandole
