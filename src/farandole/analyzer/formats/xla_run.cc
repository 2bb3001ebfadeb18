#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

struct XlaFile {
  fs::path path;
  TraceContents contents;
};

// "host1" of "host1.trace.json.gz"
std::string host_in_name(const fs::path& file) {
  const auto name = file.filename().string();
  return name.substr(0, name.find(".trace.json"));
}

RunModel run_of(std::vector<XlaFile> files) {
  RunModel run;
  run.source = TraceSource::xla;
  RunNames names(run);
  for (auto& [path, contents] : files) {
    auto& warnings = contents.summary.warnings;
    run.warnings.insert(run.warnings.end(), warnings.begin(), warnings.end());
    run.events += contents.summary.events;
    std::vector<CollectedProcess*> devices;
    for (auto& [pid, process] : contents.collector.processes())
      if (process.has_spans()) devices.push_back(&process);
    std::stable_sort(devices.begin(), devices.end(),
                     [](const auto* a, const auto* b) { return is_before(a->name, b->name); });
    const auto own = contents.collector.take_names();
    for (auto* device : devices) {
      auto& rank = run.ranks.emplace_back(rank_model_of(static_cast<int>(run.ranks.size()), *device));
      const auto number = device->name.substr(device->name.rfind(':') + 1);
      rank.process = fmt::format("GPU {}{}", number, files.size() > 1 ? " of " + host_in_name(path) : "");
      names.adopt(rank, own);
    }
  }
  if (run.ranks.empty())
    throw CorruptInput(fmt::format(
        "trace {} is of XLA's profiler (JAX, TensorFlow) and has no stream of a GPU; lines of the host and of TPUs "
        "are not read, and xprof shows them",
        files.front().path.string()));
  if (run.ranks.size() > 1)
    run.warnings.push_back("traces of XLA's profiler do not contain ranks; each GPU is taken as one");
  if (files.size() > 1) align_by_collectives(run);
  return run;
}

}  // namespace

std::optional<RunModel> read_xla(std::vector<fs::path> files) {
  // JAX writes this copy for Perfetto.
  if (files.size() > 1)
    std::erase_if(files, [](const fs::path& file) { return file.filename() == "perfetto_trace.json.gz"; });
  std::vector<XlaFile> read;
  std::vector<std::string> others;
  for (const auto& file : files) {
    try {
      auto contents = read_contents(file);
      if (contents.source == TraceSource::xla) {
        read.push_back({file, std::move(contents)});
        continue;
      }
    } catch (const CorruptInput&) {  // It is one of the others.
    }
    others.push_back(file.filename().string());
  }
  if (read.empty()) return std::nullopt;
  auto run = run_of(std::move(read));
  warn_of_others(run, others);
  return run;
}

RunModel xla_run(const fs::path& file, TraceContents contents) {
  std::vector<XlaFile> files;
  files.push_back({file, std::move(contents)});
  return run_of(std::move(files));
}

fs::path newest_capture(const fs::path& folder) {
  std::error_code ignored;
  const auto own = folder.has_filename() ? folder : folder.parent_path();  // Without a slash at its end.
  const auto captures = own.filename() == "profile" ? own : own / "plugins" / "profile";
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(captures, ignored))
    if (entry.is_directory(ignored)) newest = std::max(newest, entry.path());
  return newest.empty() ? folder : newest;
}

}  // namespace farandole
