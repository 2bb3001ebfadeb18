#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <future>
#include <set>
#include <thread>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/model/trace_collector.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

// The contents of one file: one rank with its own names.
struct RankFile {
  std::filesystem::path path;
  RankModel model;
  CollectedNames names;
  TraceSummary summary;
  TraceOrigin origin;
  std::vector<std::int64_t> devices;
  std::uint64_t gpu_spans = 0;
  bool is_kineto = false, has_spans = false;
  std::optional<std::int64_t> rank;  // As the file or its name says.

  // The program used an accelerator, but the profiler did not record the work.
  bool hides_device() const {
    static constexpr std::array<std::string_view, 4> of_devices = {"nccl", "rccl", "hccl", "xccl"};
    const bool uses = origin.uses_device || std::find(of_devices.begin(), of_devices.end(),
                                                      summary.header.kineto_backend) != of_devices.end();
    return uses && gpu_spans == 0;
  }
};

// Returns the times within annotations of the training thread that nothing else covers. The trace does not
// record what the thread does while none of its operators runs; it may wait for other threads.
std::vector<Interval> gaps_of(const RankModel& model) {
  std::vector<Interval> gaps;
  for (const auto& piece : innermost(model.training()))
    if (piece.category == Category::other) gaps.push_back({piece.start, piece.end});
  return gaps;
}

void fill(RankModel& model, const IntervalSet& times, Category category) {
  for (const auto& time : times.intervals()) model.packed_training.append({time.start, time.end, category});
}

// autograd runs the backward pass of GPUs on its own threads.
IntervalSet backward_of(const CollectedProcess& process) {
  std::vector<CategorySpan> spans;
  for (const auto& [tid, thread] : process.threads) thread.spans.kept().unpack(spans);
  return intervals_of(spans, Category::backward);
}

// If a collective that the host executes ends in a gap, the training thread has waited for it since the
// start of the collective.
void add_waits(RankModel& model) {
  std::vector<Interval> running;
  std::vector<std::int64_t> ends;
  for (const auto& span : model.collectives()) {
    running.push_back({span.start, span.end});
    ends.push_back(span.end);
  }
  std::sort(ends.begin(), ends.end());
  auto gaps = gaps_of(model);
  for (auto& gap : gaps) {
    const auto after = std::upper_bound(ends.begin(), ends.end(), gap.end);
    gap.end = after == ends.begin() ? gap.start : *(after - 1);
  }
  fill(model, intersect(IntervalSet(std::move(running)), IntervalSet(std::move(gaps))), Category::wait);
}

// "process 4242 on GPUs 0, 1"
std::string described(const std::vector<std::int64_t>& hosts, const std::vector<std::int64_t>& devices) {
  std::string text;
  if (!hosts.empty())
    text = fmt::format("process{} {}", hosts.size() > 1 ? "es" : "", fmt::join(hosts, ", "));
  if (!devices.empty())
    text += fmt::format("{}GPU{} {}", text.empty() ? "" : " on ", devices.size() > 1 ? "s" : "",
                        fmt::join(devices, ", "));
  return text;
}

// In these files, processor and devices are separate processes. All of them belong to the rank.
RankFile rank_file(const std::filesystem::path& path, TraceContents contents) {
  RankFile file;
  file.path = path;
  file.summary = std::move(contents.summary);
  file.origin = contents.collector.origin();
  file.is_kineto = contents.source == TraceSource::kineto;
  if (!file.is_kineto) return file;
  CollectedProcess whole;
  std::vector<std::int64_t> hosts;
  std::int64_t next = 0;
  for (auto& [pid, process] : contents.collector.processes()) {
    bool is_host = false, is_device = false;
    for (auto& [tid, thread] : process.threads) {
      is_host |= thread.spans.seen() + thread.operators.seen() > 0;
      is_device |= thread.gpu.size() > 0;
      file.gpu_spans += thread.gpu.size();
      thread.device = pid;
      whole.threads.emplace(next++, std::move(thread));
    }
    if (is_host) hosts.push_back(pid);
    if (is_device) file.devices.push_back(pid);
  }
  auto& warnings = file.summary.warnings;
  file.has_spans = whole.has_spans();
  if (!file.has_spans) warnings.push_back("trace " + path.string() + " holds no spans");
  if (file.origin.untimed > 0)
    warnings.push_back(fmt::format("trace {}: {} kernels and copies without a time are left out",
                                   path.string(), file.origin.untimed));
  const auto backward = backward_of(whole);
  file.model = rank_model_of(0, whole);
  fill(file.model, intersect(backward, IntervalSet(gaps_of(file.model))), Category::backward);
  if (file.model.packed_gpu.empty()) add_waits(file.model);
  file.model.process = described(hosts, file.devices);
  file.names = contents.collector.take_names();
  const auto stated = file.summary.header.kineto_rank;
  file.rank = stated && *stated >= 0 && *stated < INT32_MAX ? stated : rank_in_name(path);
  return file;
}

// A file that is no trace is not of PyTorch's profiler.
RankFile read_file(const std::filesystem::path& path) {
  try {
    return rank_file(path, read_contents(path));
  } catch (const CorruptInput&) {
    RankFile file;
    file.path = path;
    return file;
  }
}

std::vector<RankFile> read_files(const std::vector<std::filesystem::path>& files) {
  std::vector<RankFile> results(files.size());
  const std::size_t threads =
      std::min<std::size_t>(files.size(), std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::future<void>> workers;
  for (std::size_t worker = 0; worker < threads; ++worker)
    workers.push_back(std::async(std::launch::async, [&, worker] {
      for (auto i = worker; i < files.size(); i += threads) results[i] = read_file(files[i]);
    }));
  for (auto& worker : workers) worker.get();
  return results;
}

// Gives ranks to the files that do not say theirs: in the order of their devices if each has its own, or else
// of their names, which PyTorch makes of host and process.
void number_files(std::vector<RankFile>& files, std::vector<std::string>& warnings) {
  std::vector<RankFile*> unnamed;
  std::set<std::int64_t> taken, devices;
  std::size_t all = 0;
  for (auto& file : files) {
    if (file.rank) {
      taken.insert(*file.rank);
      continue;
    }
    unnamed.push_back(&file);
    devices.insert(file.devices.begin(), file.devices.end());
    all += std::max<std::size_t>(file.devices.size(), 1);
  }
  const bool by_device = devices.size() == all;
  std::sort(unnamed.begin(), unnamed.end(), [&](const RankFile* a, const RankFile* b) {
    if (by_device) return a->devices < b->devices;
    return is_before(a->path.filename().string(), b->path.filename().string());
  });
  std::int64_t next = 0;
  for (auto* file : unnamed) {
    while (taken.count(next) > 0) ++next;
    file->rank = next++;
    if (files.size() > 1)
      warnings.push_back(fmt::format("{} does not contain its rank; by its {} it is taken as rank {}",
                                     file->path.string(), by_device ? "GPU" : "name", *file->rank));
  }
}

// Of several captures of a rank, the first one with kernels is used.
void keep_one_of_each_rank(std::vector<RankFile>& files, std::vector<std::string>& warnings) {
  std::stable_sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if ((a.gpu_spans > 0) != (b.gpu_spans > 0)) return a.gpu_spans > 0;
    return is_before(a.path.filename().string(), b.path.filename().string());
  });
  std::vector<RankFile> kept;
  for (auto& file : files) {
    if (kept.empty() || kept.back().rank != file.rank) {
      kept.push_back(std::move(file));
      continue;
    }
    warnings.push_back(fmt::format(
        "rank {} is in {} and in {}. Perhaps the folder has two runs or captures. The second file{} is left "
        "out",
        *file.rank, kept.back().path.string(), file.path.string(),
        kept.back().gpu_spans > 0 && file.gpu_spans == 0 ? ", which has no kernels," : ""));
  }
  files = std::move(kept);
}

// What a rank computes on an accelerator is unknown if the profiler recorded only its host.
void leave_out_hidden(std::vector<RankFile>& files, RunModel& run) {
  const auto hidden = static_cast<std::size_t>(
      std::count_if(files.begin(), files.end(), [](const RankFile& file) { return file.hides_device(); }));
  if (hidden == 0) return;
  if (std::all_of(files.begin(), files.end(), [](const RankFile& file) { return file.gpu_spans == 0; })) {
    run.hidden_compute =
        "the program uses an accelerator, but the profiler recorded only the host, so useful compute is "
        "unknown; record the device, too (ProfilerActivity.CUDA)";
    return;
  }
  for (const auto& file : files)
    if (file.hides_device())
      run.warnings.push_back(
          fmt::format("{}: rank {} uses an accelerator, but the file has no kernels; it is left out",
                      file.path.string(), *file.rank));
  std::erase_if(files, [](const RankFile& file) { return file.hides_device(); });
}

RunModel run_of(std::vector<RankFile> files) {
  RunModel run;
  run.source = TraceSource::kineto;
  for (auto& file : files) {
    run.warnings.insert(run.warnings.end(), file.summary.warnings.begin(), file.summary.warnings.end());
    if (file.has_spans && file.summary.header.kineto_world_size)
      run.header.ranks = file.summary.header.kineto_world_size;
  }
  std::erase_if(files, [](const RankFile& file) { return !file.has_spans; });
  if (files.empty())
    throw CorruptInput(run.warnings.empty() ? "no trace of a rank can be read" : run.warnings.front());
  number_files(files, run.warnings);
  keep_one_of_each_rank(files, run.warnings);
  leave_out_hidden(files, run);
  RunNames names(run);
  for (auto& file : files) {
    run.events += file.summary.events;
    file.model.rank = static_cast<int>(*file.rank);
    names.adopt(file.model, file.names);
    run.ranks.push_back(std::move(file.model));
  }
  align_by_collectives(run);
  return run;
}

}  // namespace

std::optional<RunModel> read_kineto(const std::vector<std::filesystem::path>& files) {
  auto read = read_files(files);
  std::vector<std::string> others;
  for (const auto& file : read)
    if (!file.is_kineto) others.push_back(file.path.filename().string());
  std::erase_if(read, [](const RankFile& file) { return !file.is_kineto; });
  if (read.empty()) return std::nullopt;
  auto run = run_of(std::move(read));
  warn_of_others(run, others);
  return run;
}

RunModel kineto_run(const std::filesystem::path& file, TraceContents contents) {
  std::vector<RankFile> files;
  files.push_back(rank_file(file, std::move(contents)));
  return run_of(std::move(files));
}

}  // namespace farandole
