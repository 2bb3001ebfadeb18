// A run as the metrics need it: all ranks, on one clock, what each thread did when. Reading is usable from
// any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/model/packed_events.h"
#include "farandole/base/run_json.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

struct StepSpan {
  std::int64_t number = 0;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

// One rank's events, packed: memory grows with phases and collectives, not with what is recorded inside of
// them. Only one rank's are unpacked at a time.
struct RankModel {
  int rank = 0;
  std::string host;
  std::vector<StepSpan> steps;  // by number, each once; the last where a number comes again after a restart
  Interval extent{INT64_MAX, INT64_MIN};  // from the first start to the last end of the events below
  PackedSpans packed_training;
  std::vector<PackedCollectives> packed_collectives;
  std::vector<GpuSpans> packed_gpu;
  // What alignment of clocks could not remove; nullopt where this rank's clock could not be aligned.
  std::optional<double> clock_residual_us = 0.0;
  PackedCollectives packed_gradients;  // when gradients were ready, in the steps that note them
  std::int64_t shift_ns = 0;           // that the functions below add, and that steps and extent have

  void shift_by(std::int64_t ns);
  // Of the training thread, also collectives and steps, as recorded but for what cannot change innermost().
  std::vector<CategorySpan> training() const;
  std::vector<CollectiveSpan> collectives() const;  // of all threads, by start
  // When each gradient was ready, where a step notes it: at `start`; by time.
  std::vector<CollectiveSpan> gradients() const;
  // Kernels are gpu_kernel, NCCL's are communication, copies are gpu_memcpy; by start.
  std::vector<CategorySpan> gpu() const;
  std::vector<CategorySpan> gpu_launched_in(std::size_t phase) const;  // phase_count: unknown where
};

enum class TraceSource { farandole, kineto, horovod, nsys, chrome };

struct RunModel {
  std::filesystem::path path;
  TraceSource source = TraceSource::farandole;
  RunFacts facts;
  TraceHeader header;
  std::vector<RankModel> ranks;  // by rank; those that the trace has
  bool clocks_stated = true;     // the trace says how well its clocks agree
  std::vector<std::string> names;
  std::uint64_t events = 0;
  std::uint64_t bytes = 0;
  std::string damage;  // why its trace ends early; "" where it does not
  std::vector<std::string> warnings;

  // Ranks of the run, of which the trace may have a sample: what run.json says, else the trace.
  std::size_t world_size() const;
};

// `path` is a run directory (run.json, timeline.json.gz), a trace of ours or of another program, or a folder
// of traces of PyTorch's profiler or of Nsight Systems, one a rank. Where a run's trace has a sample of its
// ranks and the recorders of more lie beside it, or is damaged and recorders lie beside it, those are read.
// What is damaged or missing is named in `warnings`. Throws UserError where there is no trace, CorruptInput
// where nothing in it is sound.
RunModel read_run(const std::filesystem::path& path);

}  // namespace farandole
