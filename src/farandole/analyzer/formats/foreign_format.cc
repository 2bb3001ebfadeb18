// What is told of files of other tools that are not read.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/base/error.h"
#include "farandole/timeline/chrome_trace/trace_scanner.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* other_recording =
    "farandole reads PyTorch's profiler (one JSON file per rank) and exports of Nsight Systems, and `farandole run "
    "--trace-torch` records without a profiler";

struct ForeignFormat {
  std::array<std::string_view, 3> endings;  // Of the name, without ".gz".
  std::string_view openings;                // The contents begin with one of these characters,
  std::array<std::string_view, 3> parts;    // and one of these follows.
  const char* what;
  const char* remedy = other_recording;  // {0} is the file, {1} its folder.
};

constexpr ForeignFormat formats[] = {
    {{".nsys-rep", ".qdrep"},
     "",
     {},
     "a report of Nsight Systems",
     "`nsys export --type sqlite {0}` writes the SQLite file that farandole analyze reads"},
    {{".ncu-rep"}, "", {}, "a report of Nsight Compute, which measures kernels one by one"},
    {{".xplane.pb"},
     "\n",
     {"/host:CPU", "/device:GPU:", "/device:TPU:"},
     "of XLA's profiler (JAX, TensorFlow), in a format that is not read",
     "give the .trace.json.gz beside it, or the perfetto_trace.json.gz of jax.profiler.trace(…, "
     "create_perfetto_trace=True)"},
    {{},
     "{S\"",
     {"\"rocprofiler-sdk-tool\"", "rocpd_", "\"Kind\",\"Agent_Id\""},
     "of rocprofv3, whose files are not read"},
    {{},
     "{\x80",
     {"pg_config", "collective_seq_id"},
     "a dump of PyTorch's flight recorder",
     "`torchfrtrace {1}` compares the pickles of all ranks (nccl_trace_rank_N) and names the collective that a rank has "
     "not started"},
    {{},
     "{",
     {"\"coll_perf\"", "\"p2p_perf\""},
     "a log of NCCL Inspector, which has no times of steps and kernels"},
    {{},
     "\x80",
     {"device_traces"},
     "a snapshot of PyTorch's memory, not of times",
     "https://pytorch.org/memory_viz shows it"},
    {{}, "{", {"-chakra."}, "an execution trace of PyTorch, which has no times of kernels"},
    {{".pftrace", ".perfetto-trace", ".proto"}, "", {}, "a trace in Perfetto's format, which is not read"},
};

std::optional<std::string> format_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  TraceWindow window(file);
  window.refill();
  const std::string_view text(window.data(), window.size());
  const auto name = (file.extension() == ".gz" ? file.stem() : file.filename()).string();
  const auto is_ending = [&](std::string_view ending) { return !ending.empty() && name.ends_with(ending); };
  const auto is_part = [&](std::string_view part) {
    return !part.empty() && text.find(part) != std::string_view::npos;
  };
  for (const auto& [endings, openings, parts, what, remedy] : formats)
    if (std::any_of(endings.begin(), endings.end(), is_ending) ||
        (!text.empty() && openings.find(text.front()) != std::string_view::npos &&
         std::any_of(parts.begin(), parts.end(), is_part)))
      return fmt::format("{} is {}; ", file.string(), what) +
             fmt::format(fmt::runtime(remedy), file.string(),
                         file.has_parent_path() ? file.parent_path().string() : ".");
  return std::nullopt;
}

}  // namespace

std::optional<std::string> foreign_format(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return format_of(path);
  std::vector<fs::path> files;
  constexpr std::size_t most = 64;  // They are opened.
  for (fs::recursive_directory_iterator entry(path, ignored), end; entry != end && files.size() < most;
       entry.increment(ignored)) {
    if (entry.depth() == 3) entry.disable_recursion_pending();
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    try {
      if (auto format = format_of(file)) return format;
    } catch (const Error&) {  // It cannot be read.
    }
  }
  return std::nullopt;
}

}  // namespace farandole
