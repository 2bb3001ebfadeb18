#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sqlite3.h>
#include <tuple>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/model/trace_collector.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {
namespace {

constexpr std::int64_t latest_ns = std::int64_t{1} << 61;

bool is_gzip(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return stream.get() == 0x1f && stream.get() == 0x8b;
}

// SQLite must seek, so it reads a copy without compression. Real exports shrink to a tenth; a file made to
// fill the disk shrinks to a thousandth.
void inflate(const std::filesystem::path& file, const std::filesystem::path& copy) {
  const auto inflated = InflatedFile::open(file);
  if (!inflated) throw UserError("open " + file.string() + ": it cannot be read");
  std::ofstream out(copy, std::ios::binary);
  std::vector<char> buffer(std::size_t{1} << 20);
  const auto most = std::max<std::uintmax_t>(64 << 20, 100 * std::filesystem::file_size(file));
  std::uintmax_t written = 0;
  while (const auto got = inflated->read(buffer.data(), buffer.size())) {
    if ((written += got) > most)
      throw CorruptInput(fmt::format(
          "SQLite file {}: it unpacks to more than {} MiB, which is 100 times its size; unpack it yourself if that is meant",
          file.string(), most >> 20));
    out.write(buffer.data(), static_cast<std::streamsize>(got));
  }
  if (!out.flush()) throw system_error("write the temporary file", copy);
  if (!inflated->damage().empty())
    throw CorruptInput("SQLite file " + file.string() + ": " + inflated->damage());
}

// An SQLite file, plain or gzip, that is open for reading.
class SqliteFile {
 public:
  // One row of a result, valid only during the call. Columns count from 0. NULL is returned as 0 or "".
  class Row {
   public:
    explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
    std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
    std::string_view text(int column) const {
      const auto* const bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
      if (bytes == nullptr) return {};
      return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
    }

   private:
    sqlite3_stmt* statement_;
  };

  explicit SqliteFile(const std::filesystem::path& path) : path_(path.string()) {
    std::optional<TemporaryFolder> folder;  // SQLite keeps the copy open after its name is removed.
    if (is_gzip(path)) inflate(path, folder.emplace() / "copy.sqlite");
    sqlite3* file = nullptr;
    const auto plain = folder ? *folder / "copy.sqlite" : path;
    const int result = sqlite3_open_v2(plain.c_str(), &file, SQLITE_OPEN_READONLY, nullptr);
    file_.reset(file);
    if (result != SQLITE_OK)
      throw UserError("open " + path_ + ": " + (file != nullptr ? sqlite3_errmsg(file) : "out of memory"));
  }

  bool has_column(const std::string& table, const std::string& column) {
    bool found = false;
    query("SELECT name FROM pragma_table_info('" + table + "')",
          [&](const Row& row) { found |= row.text(0) == column; });
    return found;
  }

  // Throws: CorruptInput with the message of SQLite.
  void query(const std::string& sql, const std::function<void(const Row&)>& take) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(file_.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK) fail();
    const std::unique_ptr<sqlite3_stmt, Close> owner(statement);
    int result = SQLITE_ROW;
    for (; (result = sqlite3_step(statement)) == SQLITE_ROW;) take(Row(statement));
    if (result != SQLITE_DONE) fail();
  }

 private:
  struct Close {
    void operator()(sqlite3* file) const { sqlite3_close(file); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  [[noreturn]] void fail() const {
    throw CorruptInput("SQLite file " + path_ + ": " + sqlite3_errmsg(file_.get()));
  }

  std::string path_;
  std::unique_ptr<sqlite3, Close> file_;
};

std::string lowered(std::string_view text) {
  std::string result(text);
  for (auto& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Reads "step 12", "Iteration #12" and "ProfilerStep#12".
std::optional<std::int64_t> step_of(const std::string& name) {
  static constexpr std::array<std::string_view, 5> words = {"step", "iteration", "iter", "batch",
                                                            "profilerstep"};
  const auto digit = name.find_first_of("0123456789");
  if (digit == std::string::npos) return std::nullopt;
  auto word = std::string_view(name).substr(0, digit);
  while (!word.empty() && std::string_view(" #:_=").find(word.back()) != std::string_view::npos)
    word.remove_suffix(1);
  if (std::find(words.begin(), words.end(), word) == words.end()) return std::nullopt;
  return parse_number<std::int64_t>(std::string_view(name).substr(digit));
}

// Continues "CASE kind", a copy's CUpti_ActivityMemcpyKind.
constexpr const char* copy_names =
    " WHEN 1 THEN 'copy host to device' WHEN 2 THEN 'copy device to host' WHEN 8 THEN 'copy on the device' "
    "WHEN 10 THEN 'copy device to device' END";

constexpr std::int64_t thread_ids = 0x1000000;  // An id of a thread is that of its process and 24 bits.

// The process id that the system gave the process with this global id.
std::int64_t pid_in(std::int64_t global) {
  return global / thread_ids % thread_ids;
}

// What a file tells of one of its processes.
struct NsysProcess {
  std::optional<std::int64_t> rank;  // As MPI had it.
  std::set<std::int64_t> devices;
};

// Reads one file into its own collector. If the file is damaged, the events before the damage
// are also left out.
class NsysFile {
 public:
  explicit NsysFile(const std::filesystem::path& path) : path_(path), file_(path) {}

  void read() {
    // A kernel's demangled name contains "ncclDevKernel_AllReduce…". Any of the tables may be missing. By
    // default, nsys records one row per launch for a CUDA graph and no kernels.
    read_gpu("CUPTI_ACTIVITY_KIND_KERNEL", "kernel", true);
    const auto kernels = events_;
    read_gpu("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "kernel", false);
    graphs_ = events_ - kernels;
    read_gpu("CUPTI_ACTIVITY_KIND_MEMCPY", "gpu_memcpy", false);
    read_gpu("CUPTI_ACTIVITY_KIND_MEMSET", "gpu_memset", false);
    read_ranges();
    read_launches();
    read_ranks();
    if (!found_)
      throw CorruptInput("SQLite file " + path_.string() +
                         " has neither kernels nor NVTX ranges of Nsight Systems; write it with nsys export");
  }

  TraceCollector& collector() { return collector_; }
  std::uint64_t events() const { return events_; }
  std::uint64_t damaged() const { return damaged_; }
  std::uint64_t untimed() const { return untimed_; }
  std::map<std::int64_t, NsysProcess>& processes() { return processes_; }
  std::uint64_t graphs() const { return graphs_; }  // CUDA graphs that were recorded as a whole.

 private:
  void read_gpu(const std::string& table, std::string_view category, bool named) {
    if (!file_.has_column(table, "start")) return;
    found_ = true;
    const std::string pid = file_.has_column(table, "globalPid") ? "k.globalPid" : "0";
    const auto column = [&](const char* wanted) {
      return file_.has_column(table, wanted) ? std::string("k.") + wanted : std::string("NULL");
    };
    const std::string name = named ? "(SELECT value FROM StringIds WHERE id = k.demangledName)"
                                   : "CASE " + column("copyKind") + copy_names;
    file_.query("SELECT k.start, k.end, k.deviceId, k.streamId, " + pid + ", " + name +
                    ", k.start IS NULL OR k.end IS NULL OR k.end <= 0, " + column("bytes") + ", " +
                    column("correlationId") + " FROM " + table + " k ORDER BY k.start",
                [&](const SqliteFile::Row& row) {
                  if (row.integer(6) != 0) {
                    ++untimed_;
                    return;
                  }
                  TraceSpan span;
                  span.pid = row.integer(4) / thread_ids * thread_ids;
                  const auto device = device_of(span.pid, row.integer(2));
                  processes_[span.pid].devices.insert(device);
                  // Streams have ids that differ from those of threads.
                  span.tid = -1 - (device << 24) - row.integer(3);
                  span.category_text = category;
                  span.name = row.text(5);
                  if (span.name.empty()) span.name = category;
                  span.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(0, row.integer(7)));
                  if (const auto number = row.integer(8); number > 0)
                    span.correlation = static_cast<std::uint64_t>(number);
                  put(span, row.integer(0), row.integer(1));
                });
  }

  void read_ranges() {
    if (!file_.has_column("NVTX_EVENTS", "end")) return;
    found_ = true;
    file_.query(
        "SELECT n.start, n.end, n.globalTid, COALESCE(n.text, (SELECT value FROM StringIds WHERE id = "
        "n.textId)) "
        "FROM NVTX_EVENTS n WHERE n.end IS NOT NULL ORDER BY n.start, n.end DESC",
        [&](const SqliteFile::Row& row) {
          const auto thread = row.integer(2);
          const auto name = lowered(row.text(3));
          TraceSpan span;
          span.pid = thread / thread_ids * thread_ids;
          span.tid = thread % thread_ids;
          span.name = row.text(3);
          span.step = step_of(name);
          span.category_text = "nvtx";
          span.category = span.step ? Category::step : category_of(name).value_or(Category::other);
          put(span, row.integer(0), row.integer(1));
        });
  }

  void read_launches() {
    if (!file_.has_column("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId") ||
        !file_.has_column("StringIds", "value"))
      return;
    file_.query(
        "SELECT r.start, r.end, r.globalTid, r.correlationId, s.value FROM CUPTI_ACTIVITY_KIND_RUNTIME r "
        "JOIN StringIds s ON s.id = r.nameId WHERE r.correlationId > 0",
        [&](const SqliteFile::Row& row) {
          const auto thread = row.integer(2), start = row.integer(0), end = row.integer(1);
          if (start < -latest_ns || end > latest_ns || start > end) return;
          TraceSpan span;
          span.pid = thread / thread_ids * thread_ids;
          span.tid = thread % thread_ids;
          span.category_text = "cuda_runtime";
          span.name = row.text(4);
          span.start_ns = start;
          span.duration_ns = end - start;
          span.correlation = static_cast<std::uint64_t>(row.integer(3));
          collector_.span(span);
        });
  }

  void read_ranks() {
    if (file_.has_column("MPI_RANKS", "rank"))
      file_.query("SELECT globalTid, rank FROM MPI_RANKS", [&](const SqliteFile::Row& row) {
        processes_[row.integer(0) / thread_ids * thread_ids].rank = row.integer(1);
      });
  }

  // Processes may number their GPUs on their own (CUDA_VISIBLE_DEVICES).
  std::int64_t device_of(std::int64_t process, std::int64_t own) {
    if (!devices_) {
      devices_.emplace();
      if (file_.has_column("TARGET_INFO_CUDA_DEVICE", "gpuId") &&
          file_.has_column("TARGET_INFO_CUDA_DEVICE", "pid"))
        file_.query("SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE",
                    [&](const SqliteFile::Row& row) {
                      (*devices_)[{row.integer(0), row.integer(1)}] = row.integer(2);
                    });
    }
    const auto found = devices_->find({pid_in(process), own});
    return found != devices_->end() ? found->second : own;
  }

  void put(TraceSpan& span, std::int64_t start, std::int64_t end) {
    if (start < -latest_ns || end > latest_ns || start > end) {
      ++damaged_;
      return;
    }
    ++events_;
    span.start_ns = start;
    span.duration_ns = end - start;
    collector_.span(span);
  }

  std::filesystem::path path_;
  SqliteFile file_;
  std::map<std::int64_t, NsysProcess> processes_;  // By global id.
  std::optional<std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>> devices_;
  TraceCollector collector_;
  bool found_ = false;
  std::uint64_t events_ = 0;
  std::uint64_t damaged_ = 0;
  std::uint64_t untimed_ = 0;  // Work of GPUs without a time.
  std::uint64_t graphs_ = 0;
};

struct NsysRank {
  NsysProcess process;
  std::size_t file = 0;
  std::int64_t pid = 0;
  RankModel model;
};

// Each process is a rank.
void take_ranks(NsysFile& file, std::size_t index, RunNames& names, std::vector<NsysRank>& ranks) {
  auto& collector = file.collector();
  const auto own = collector.take_names();
  for (auto& [pid, process] : collector.processes()) {
    if (!process.has_spans()) continue;
    auto& rank = ranks.emplace_back();
    rank.process = file.processes()[pid];
    rank.file = index;
    rank.pid = pid_in(pid);
    for (auto& [tid, thread] : process.threads) thread.device = tid < 0 ? (-1 - tid) >> 24 : 0;
    rank.model = rank_model_of(0, process);
    const auto& devices = rank.process.devices;
    rank.model.process = fmt::format("process {}", rank.pid);
    if (!devices.empty())
      rank.model.process +=
          fmt::format(" on GPU{} {}", devices.size() > 1 ? "s" : "", fmt::join(devices, ", "));
    names.adopt(rank.model, own);
  }
}

// Ranks are those that MPI had, or else the order of the GPUs if each process has its own, or else of files,
// GPUs and processes.
void number(std::vector<NsysRank>& ranks, std::vector<std::string>& warnings) {
  std::set<std::int64_t> stated, devices;
  std::size_t all = 0;
  for (const auto& rank : ranks) {
    if (rank.process.rank && *rank.process.rank >= 0 && *rank.process.rank <= INT32_MAX)
      stated.insert(*rank.process.rank);
    devices.insert(rank.process.devices.begin(), rank.process.devices.end());
    all += std::max<std::size_t>(rank.process.devices.size(), 1);
  }
  const bool by_rank = stated.size() == ranks.size();
  const bool by_device = devices.size() == all;
  std::sort(ranks.begin(), ranks.end(), [&](const NsysRank& a, const NsysRank& b) {
    if (by_rank) return a.process.rank < b.process.rank;
    if (by_device) return a.process.devices < b.process.devices;
    return std::tuple(a.file, a.process.devices, a.pid) < std::tuple(b.file, b.process.devices, b.pid);
  });
  for (std::size_t i = 0; i < ranks.size(); ++i)
    ranks[i].model.rank = static_cast<int>(by_rank ? *ranks[i].process.rank : static_cast<std::int64_t>(i));
  if (!by_rank && ranks.size() > 1)
    warnings.push_back(
        fmt::format("the Nsight Systems export does not contain ranks; they are numbered by {}",
                    by_device ? "GPU" : "file, GPU and process"));
}

}  // namespace

RunModel read_nsys(const std::vector<std::filesystem::path>& files) {
  RunModel run;
  run.source = TraceSource::nsys;
  RunNames names(run);
  std::vector<NsysRank> ranks;
  std::size_t sound = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& path = files[i];
    try {
      NsysFile file(path);
      file.read();
      const auto before = ranks.size();
      take_ranks(file, i, names, ranks);
      if (ranks.size() == before + 1 && !ranks.back().process.rank)
        ranks.back().process.rank = rank_in_name(path);
      run.events += file.events();
      ++sound;
      if (file.graphs() > 0)
        run.warnings.push_back(fmt::format(
            "SQLite file {}: {} CUDA graphs are recorded as a whole; their communication counts as compute "
            "(nsys profile --cuda-graph-trace=node separates it)",
            path.string(), file.graphs()));
      if (file.untimed() > 0)
        run.warnings.push_back(
            fmt::format("SQLite file {}: {} kernels and copies without a time are left out", path.string(),
                        file.untimed()));
      if (file.damaged() > 0)
        run.warnings.push_back(fmt::format("SQLite file {}: {} events with invalid times are left out",
                                           path.string(), file.damaged()));
    } catch (const CorruptInput& error) {
      run.warnings.push_back(error.what());
    }
  }
  number(ranks, run.warnings);
  for (auto& rank : ranks) run.ranks.push_back(std::move(rank.model));
  if (run.ranks.empty())
    throw CorruptInput(run.warnings.empty() ? "the Nsight Systems export has no kernels and no ranges"
                                            : run.warnings.front());
  if (sound > 1) align_by_collectives(run);
  return run;
}

}  // namespace farandole
