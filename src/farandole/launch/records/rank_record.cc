#include "farandole/launch/records/rank_record.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <tuple>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/json.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::string to_json(const RankRecord& record, bool with_last_words) {
  Json json = {{"rank", record.rank},
               {"host", record.host},
               {"exit_code", record.exit_code},
               {"signal", record.signal},
               {"told", record.told},
               {"time_ns", record.time_ns},
               {"start_ns", record.start_ns},
               {"pid", record.pid},
               {"peak_memory_bytes", record.peak_memory_bytes},
               {"memory_limit_bytes", record.memory_limit_bytes},
               {"asked_signal", record.asked_signal},
               {"asked_ns", record.asked_ns},
               {"out_of_memory", record.out_of_memory},
               {"kernel", record.kernel},
               {"launch", record.launch},
               {"run_dir", record.run_dir}};
  if (with_last_words) json["last_words"] = record.last_words;
  return ascii_json_text(json);
}

}  // namespace

std::optional<RankRecord> parse_rank_record(std::string_view text) {
  const auto json = try_parse_json(text);
  try {
    RankRecord record{json.at("rank"),   json.at("host"), json.at("exit_code"),
                      json.at("signal"), json.at("told"), json.at("time_ns")};
    record.start_ns = json.value("start_ns", record.start_ns);
    record.pid = json.value("pid", record.pid);
    record.peak_memory_bytes = json.value("peak_memory_bytes", record.peak_memory_bytes);
    record.memory_limit_bytes = json.value("memory_limit_bytes", record.memory_limit_bytes);
    record.asked_signal = json.value("asked_signal", record.asked_signal);
    record.asked_ns = json.value("asked_ns", record.asked_ns);
    record.out_of_memory = json.value("out_of_memory", record.out_of_memory);
    record.kernel = json.value("kernel", record.kernel);
    record.launch = json.value("launch", record.launch);
    record.run_dir = json.value("run_dir", record.run_dir);
    record.last_words = json.value("last_words", record.last_words);
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void take_abort(RankRecord& record, const AnnouncedAbort& abort) {
  record.exit_code = abort.exit_code;
  record.signal = 0;
  record.told = false;
}

void add_abort(std::vector<RankRecord>& records, const AnnouncedAbort& abort, const std::string& launch) {
  const auto at = std::lower_bound(records.begin(), records.end(), abort.rank,
                                   [](const auto& record, int rank) { return record.rank < rank; });
  if (at != records.end() && at->rank == abort.rank) return;
  RankRecord record{abort.rank, abort.host, abort.exit_code, 0, false, abort.time_ns};
  record.launch = launch;
  records.insert(at, record);
}

// fsync would delay the end of a rank by tens of milliseconds.
bool write_record(const fs::path& folder, const RankRecord& record) {
  return replace_file(folder / fmt::format("rank-{:04}.json", record.rank), to_json(record, true));
}

std::vector<RankRecord> read_records(const fs::path& folder) {
  std::vector<RankRecord> records;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".json") continue;
    try {
      if (auto record = parse_rank_record(read_whole_file(entry.path()).value_or("")))
        records.push_back(*std::move(record));
    } catch (const Error&) {  // The others are still read.
    }
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return records;
}

int count_records(const fs::path& folder) {
  std::error_code ignored;
  return static_cast<int>(std::count_if(fs::directory_iterator(folder, ignored), {}, [](const auto& entry) {
    return entry.path().extension() == ".json";
  }));
}

std::string record_line(const RankRecord& record) {
  return to_json(record, false) + "\n";
}

bool is_victim(const RankRecord& record) {
  return record.signal == 0 && record.exit_code == static_cast<int>(ExitCode::peer_lost);
}

std::optional<RankRecord> first_failure(const std::vector<RankRecord>& records) {
  const auto blame = [](const RankRecord& record) {
    return std::tuple(record.told, record.told && record.signal != 0, is_victim(record), record.time_ns,
                      record.rank);
  };
  const RankRecord* first = nullptr;
  for (const auto& record : records)
    if (record.failed() && (first == nullptr || blame(record) < blame(*first))) first = &record;
  return first == nullptr ? std::nullopt : std::optional<RankRecord>(*first);
}

}  // namespace farandole
