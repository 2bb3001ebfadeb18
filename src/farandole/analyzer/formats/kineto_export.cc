#include "farandole/analyzer/formats/kineto_export.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <string>
#include <string_view>

#include "farandole/analyzer/model/phases.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/timeline/chrome_trace/trace_writer.h"
#include "farandole/timeline/gzip/gzip_writer.h"

namespace farandole {
namespace {

constexpr int compute_stream = 7;
constexpr int communication_stream = 20;
constexpr int launching_thread = 99;

// Writes the file of one rank and publishes it when it is complete.
class KinetoFile {
 public:
  KinetoFile(const std::filesystem::path& path, int rank, int world_size)
      : published_(path), file_(published_.temporary()), rank_(rank) {
    put(R"({{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": {}, "world_size": {}}}, )"
        R"("deviceProperties": [], "traceEvents": [)",
        rank, world_size);
    put(R"({{"ph":"M","name":"process_name","pid":{},"tid":0,"ts":0,"args":{{"name":"rank {}"}}}})", rank,
        rank);
  }

  void annotation(std::string_view category, std::string_view name, int thread, std::int64_t start_ns,
                  std::int64_t end_ns) {
    begin(category, name, thread, start_ns, end_ns);
    put(R"("args":{{"External id":{}}}}})", ++id_);
    flush();
  }

  // Writes a kernel or a copy as CUPTI would record it: on a stream of the device, with its launch by the
  // host. Other tools count only kernels with a launch.
  void kernel(std::string_view category, std::string_view name, int stream, std::int64_t launch_ns,
              std::int64_t start_ns, std::int64_t end_ns, std::uint64_t bytes = 0) {
    ++id_;
    begin("cuda_runtime", "cudaLaunchKernel", launching_thread, launch_ns, launch_ns);
    put(R"("args":{{"correlation":{},"External id":{}}}}})", id_, id_);
    begin(category, name, stream, start_ns, end_ns);
    put(R"("args":{{"device":0,"context":1,"stream":{},"correlation":{},"External id":{})", stream, id_, id_);
    if (bytes > 0) put(R"(,"bytes":{})", bytes);
    put("}}}}");
    flush();
  }

  void finish() {
    put("\n]}}\n");
    file_.write(buffer_);
    file_.finish();
    published_.publish();
  }

 private:
  // fmt::format_to() would compile the formatting of all types here.
  template <class... Values>
  void put(fmt::format_string<const Values&...> text, const Values&... values) {
    const auto formatted = fmt::format(text, values...);
    buffer_.append(formatted.data(), formatted.data() + formatted.size());
  }

  void begin(std::string_view category, std::string_view name, int thread, std::int64_t start_ns,
             std::int64_t end_ns) {
    const std::int64_t duration = std::max<std::int64_t>(end_ns - start_ns, 0);
    put(",\n{{\"ph\":\"X\",\"cat\":\"{}\",\"name\":", category);
    append_json_text(buffer_, name);
    put(R"(,"pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03},)", rank_, thread, start_ns / 1000,
        start_ns % 1000, duration / 1000, duration % 1000);
  }
  void flush() {
    if (buffer_.size() >= GzipWriter::piece_bytes) file_.write(buffer_);
  }

  AtomicFile published_;
  GzipWriter file_;
  const int rank_;
  fmt::memory_buffer buffer_;
  std::uint64_t id_ = 0;
};

std::string nccl_name(std::string_view operation, std::string_view name) {
  static const std::map<std::string_view, std::string_view> kernels = {{"allreduce", "AllReduce"},
                                                                       {"all_gather", "AllGather"},
                                                                       {"reduce_scatter", "ReduceScatter"},
                                                                       {"broadcast", "Broadcast"},
                                                                       {"all_to_all", "SendRecv"}};
  const auto found = kernels.find(operation);
  return fmt::format("ncclDevKernel_{}({})", found != kernels.end() ? found->second : operation, name);
}

class RankExport {
 public:
  RankExport(RankTimeline& rank, std::int64_t origin_ns, KinetoFile& file)
      : rank_(rank), origin_ns_(origin_ns), file_(file), info_(rank.records->info()) {}

  void run() {
    for (auto block = rank_.records->next(); !block.empty(); block = rank_.records->next())
      for (const Record& record : block)
        if (record.kind == RecordKind::span || record.kind == RecordKind::collective) write(record);
    if (has_kernels_) return;
    for (const CategorySpan& piece : innermost(std::move(training_)))
      if (piece.category == Category::forward || piece.category == Category::backward ||
          piece.category == Category::optimizer)
        file_.kernel("kernel", name_of(piece.category), compute_stream, piece.start, piece.start, piece.end);
  }

 private:
  std::int64_t to_trace(std::int64_t local_ns) const {
    return std::max<std::int64_t>(rank_.clock.to_reference(local_ns) - origin_ns_, 0);
  }

  void write(const Record& record) {
    const std::int64_t start = to_trace(record.start_ns), end = to_trace(record.end_ns);
    const std::int64_t launch = to_trace(record.start_ns - record.queued_ns());
    const std::string& name = info_.names.at(record.name);
    const int stream = record.track + 100;
    const bool trains = info_.threads.at(record.track).name == "training";
    if (trains) training_.push_back({start, end, record.category});
    if (record.kind == RecordKind::collective) {
      file_.kernel("kernel", nccl_name(info_.names.at(record.operation), name), communication_stream, start,
                   start, end);
    } else if (record.category == Category::gpu_kernel) {
      has_kernels_ = true;
      file_.kernel("kernel", name, stream, launch, start, end);
    } else if (record.category == Category::gpu_memcpy) {
      file_.kernel("gpu_memcpy", "Memcpy " + name, stream, launch, start, end, record.bytes());
    } else if (record.category == Category::step) {
      file_.annotation("user_annotation", fmt::format("ProfilerStep#{}", record.step), record.track, start,
                       end);
    } else {
      file_.annotation("cpu_op", name, record.track, start, end);
    }
  }

  RankTimeline& rank_;
  const std::int64_t origin_ns_;
  KinetoFile& file_;
  const RankInfo& info_;
  std::vector<CategorySpan> training_;
  bool has_kernels_ = false;
};

}  // namespace

std::size_t export_kineto(std::vector<RankTimeline> ranks, const std::filesystem::path& folder) {
  refine_clocks_of(ranks);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw Error("create folder " + folder.string() + ": " + failure.message());
  const std::int64_t origin_ns = earliest_of(ranks);
  for (RankTimeline& rank : ranks) {
    const RankInfo& info = rank.records->info();
    KinetoFile file(folder / fmt::format("rank-{:04}.json.gz", info.rank), info.rank, info.world_size);
    RankExport(rank, origin_ns, file).run();
    file.finish();
  }
  return ranks.size();
}

}  // namespace farandole
