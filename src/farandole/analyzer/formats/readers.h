// Reads a run in any of the formats that the analyzer knows. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/model/trace_collector.h"

namespace farandole {

// The flight recorders of the ranks. They are used if a run has no merged trace or an old one (it was killed
// or still runs), or if the merged trace has few of its ranks. `path` is a run directory with recorder/*.ftl,
// a folder of such files, or one file. Clocks are aligned as in a merge. Missing or damaged files are named
// in the warnings.
// Throws: UserError if there is no recorder file; CorruptInput if no file can be read.
RunModel read_recorders(const std::filesystem::path& path);

// Adds warnings about what the recorders of a run say of its ranks: those that did not close them, that began
// late, or whose clocks were not measured. Call it after the run was read.
void warn_of_ranks(const std::filesystem::path& path, RunModel& run);

// A trace in Chrome's format after it was read. Its events tell which program wrote it.
struct TraceContents {
  TraceCollector collector;
  TraceSummary summary;
  TraceSource source = TraceSource::chrome;
};

// Throws: UserError if the file cannot be opened; CorruptInput if it contains no undamaged event.
TraceContents read_contents(const std::filesystem::path& file);

// Traces of PyTorch's profiler (Kineto), one file per rank. The rank comes from the distributedInfo of each
// file, or else from its name ("rank3"), or else from the order of the devices, or else of the names, which
// contain the process. Of two files of a rank, one with kernels is used. Clocks are aligned by the ends of
// collectives, which all ranks leave at nearly the same time; the remaining error is the clock_residual_us of
// each rank. Files are read in parallel.
// Damaged files are named in the warnings and left out, and so are files of other programs.
// Returns std::nullopt if no file is of PyTorch's profiler.
// Throws: CorruptInput if no file of PyTorch's profiler contains a span.
std::optional<RunModel> read_kineto(const std::vector<std::filesystem::path>& files);
RunModel kineto_run(const std::filesystem::path& file, TraceContents contents);

// Exports of Nsight Systems (nsys export --type sqlite, plain or gzip) with one or several processes per
// file: kernels, CUDA graphs, copies and NVTX ranges. Ranges named "step 12" or "iteration 12" are steps;
// ranges named like Farandole's categories ("forward", "data", …) are phases. Ranks are those that MPI had,
// or else the order of the GPUs if each process has its own, or else of files, GPUs and processes. Damaged
// files are named in the warnings and left out.
// Throws: CorruptInput if no file can be read.
RunModel read_nsys(const std::vector<std::filesystem::path>& files);

// A Horovod timeline: one file of the coordinator. Its NEGOTIATE spans record when each rank was ready. Every
// rank gets the collectives for which it was ready, without the queue and the copies around them. Operations
// that Horovod took from its cache of responses have no ready ranks; all ranks get them, and their waiting is
// unknown. The compute of the ranks is unknown.
// Throws: CorruptInput if no operation was completed.
RunModel read_horovod(const std::filesystem::path& file);

// Traces of XLA's profiler (JAX, TensorFlow), one file per host. Each GPU is a rank, in the order of files
// and GPUs. The work of a GPU is what the lines of its streams show.
// Returns std::nullopt if no file is of XLA's profiler.
// Throws: CorruptInput if no file has a stream of a GPU.
std::optional<RunModel> read_xla(std::vector<std::filesystem::path> files);
RunModel xla_run(const std::filesystem::path& file, TraceContents contents);

// The folder of the newest capture if `folder` has captures of XLA's profiler (plugins/profile/DATE),
// or else `folder`.
std::filesystem::path newest_capture(const std::filesystem::path& folder);

// One line that names the format of a file that is not read, and says what to do. For a folder, it is that of
// the first such file in it, or up to three folders below. Returns std::nullopt for all other files.
std::optional<std::string> foreign_format(const std::filesystem::path& path);

// `path` is a run directory (run.json, timeline.json.gz), a trace of Farandole or another tool, or a folder
// of traces of PyTorch's profiler, XLA's or Nsight Systems with one file per rank. If the merged trace is
// damaged or has only a sample of the ranks, the recorder files next to it are read instead. Damaged or
// missing parts are named in `warnings`.
// Throws: UserError if there is no trace; CorruptInput if no part of it can be read, or if its format is not.
RunModel read_run(const std::filesystem::path& path);

// Warns of files of a folder that are left out.
void warn_of_others(RunModel& model, const std::vector<std::string>& files);

// Reads the rank from "rank_3.pt.trace.json" or "host-rank3.sqlite".
std::optional<std::int64_t> rank_in_name(const std::filesystem::path& file);

// Orders names as people do: "rank2" is before "rank10".
bool is_before(std::string_view name, std::string_view other);

}  // namespace farandole
