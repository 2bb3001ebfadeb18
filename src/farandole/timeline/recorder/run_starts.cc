#include "farandole/timeline/recorder/run_starts.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/timeline/recorder/node_file.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// What the launcher knows (launch/records/job_record.h), which this layer does not use.
struct Launch {
  std::int64_t begin_ns = 0, end_ns = 0, ranks = 0, allocated_ns = 0;
  std::string host, allocation;
};

std::optional<Launch> read_launch(const fs::path& folder) try {
  const auto json = try_parse_json(read_whole_file(folder / "launch/job.json").value_or(""));
  if (!json.is_object()) return std::nullopt;
  Launch launch;
  launch.begin_ns = json.at("start_ns");
  launch.end_ns = json.value("end_ns", std::int64_t{0});
  launch.ranks = json.at("ranks");
  launch.host = json.at("host");
  const auto slurm = json.value("slurm", Json::object());
  const auto text = [&](const char* key) { return slurm.value(key, std::string()); };
  // A launcher that starts its ranks again keeps its cores. So does a Slurm job until it is requeued.
  launch.allocation = slurm.contains("JOB_ID")
                          ? fmt::format("job {} start {}", text("JOB_ID"), text("RESTART_COUNT"))
                          : fmt::format("{} {}", launch.host, json.at("pid").dump());
  launch.allocated_ns = parse_number<std::int64_t>(text("JOB_START_TIME")).value_or(0) * 1'000'000'000;
  return launch;
} catch (const std::exception&) {  // A damaged record tells nothing.
  return std::nullopt;
}

struct ReadStart {
  RunStartTimes times;
  std::unique_ptr<RecorderFile> recorder;  // of rank 0; null if it cannot be read
  std::int64_t last_step = -1;

  std::int64_t real(std::int64_t monotonic_ns) const {
    return recorder->start_realtime_ns() + (monotonic_ns - recorder->start_monotonic_ns());
  }
};

void read_recorder(ReadStart& start, const fs::path& folder) {
  auto& times = start.times;
  const auto file = readable_recorder(folder, 0);
  if (!file) {
    times.unknown = "there is no flight recorder of rank 0";
    return;
  }
  try {
    start.recorder = std::make_unique<RecorderFile>(*file);
  } catch (const Error&) {
    times.unknown = "the flight recorder of rank 0 is damaged";
    return;
  }
  const auto& recorder = *start.recorder;
  const auto& totals = recorder.totals();
  times.counts_own_steps = recorder.counts_own_steps();
  times.worked_ns = std::max(recorder.start_realtime_ns(),
                             totals.newest_step_ns != 0 ? start.real(totals.newest_step_ns) : 0);
  start.last_step = recorder.last_step();
  constexpr std::uint64_t newest = 1'000;
  for (std::size_t slot = 0; slot < std::min<std::size_t>(1, recorder.threads().size()); ++slot)
    for (const auto& record : recorder.newest_records(slot, newest)) {
      times.worked_ns = std::max(times.worked_ns, start.real(record.end_ns));
      if (record.kind != RecordKind::none) start.last_step = std::max(start.last_step, record.step);
    }
  times.restoring_ns = totals.restoring_ns;
  if (totals.first_step_ns == 0) return;
  times.first_step = totals.first_step;
  times.first_step_ns = start.real(totals.first_step_ns);
  times.saving_ns = totals.saving_ns;
}

// The records of the launcher that wrote them about another start are left out.
void take_launch(ReadStart& start, const std::optional<Launch>& launch) {
  auto& times = start.times;
  const auto began = start.recorder ? start.recorder->start_realtime_ns() : 0;
  // The clocks of two hosts may differ.
  const std::int64_t near_ns =
      start.recorder && launch && launch->host == start.recorder->host() ? 0 : 60'000'000'000;
  const bool fits = launch && (began == 0 || (launch->begin_ns <= began + near_ns &&
                                              (launch->end_ns == 0 || began <= launch->end_ns + near_ns)));
  times.begin_ns = fits ? launch->begin_ns : began;
  times.end_ns = std::max(fits ? launch->end_ns : 0, times.worked_ns);
  times.ranks = start.recorder ? start.recorder->world_size() : fits ? launch->ranks : 0;
  if (!fits) return;
  times.allocation = launch->allocation;
  times.allocated_ns = launch->allocated_ns;
}

ReadStart read_start(const fs::path& folder, const std::string& name) {
  ReadStart start;
  start.times.name = name;
  read_recorder(start, folder);
  take_launch(start, read_launch(folder));
  return start;
}

// The time in spans of category checkpoint from `from_ns` on, CLOCK_MONOTONIC.
std::int64_t saving_after(const std::vector<Record>& records, std::int64_t from_ns) {
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  for (const auto& record : records)
    if (record.kind == RecordKind::span && record.category == Category::checkpoint && record.end_ns > from_ns)
      spans.emplace_back(std::max(record.start_ns, from_ns), record.end_ns);
  std::sort(spans.begin(), spans.end());
  std::int64_t sum = 0, until = from_ns;
  for (const auto& [begin, end] : spans) {
    sum += std::max<std::int64_t>(0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  return sum;
}

// Finds when `step` began, from which a later start went on. The records are read backwards, because that
// is mostly near the end.
void find_lost(ReadStart& start, std::int64_t step) {
  auto& times = start.times;
  if (!start.recorder || !times.first_step || step > start.last_step || times.counts_own_steps) return;
  const auto& recorder = *start.recorder;
  const auto recorded = recorder.threads().empty() ? 0 : recorder.threads().front().recorded;
  for (std::uint64_t newest = 20'000;; newest *= 10) {
    const auto records = recorder.newest_records(0, newest);
    const bool reaches =
        step <= *times.first_step || std::any_of(records.begin(), records.end(), [&](const Record& record) {
          return record.step >= 0 && record.step < step;
        });
    if (!reaches && newest < recorded) continue;
    std::int64_t began = INT64_MAX;
    for (const auto& record : records)
      if (record.step >= step) began = std::min(began, record.start_ns);
    if (step <= *times.first_step) began = recorder.totals().first_step_ns;
    // A kill in its first moments leaves no record of it.
    if (began == INT64_MAX && step == recorder.last_step()) began = recorder.totals().newest_step_ns;
    if (!reaches || began == INT64_MAX) {
      times.unknown = fmt::format("the flight recorder does not reach back to step {}", step);
      return;
    }
    times.lost_ns = start.real(began);
    times.saving_ns = std::max<std::int64_t>(0, times.saving_ns - saving_after(records, began));
    return;
  }
}

}  // namespace

std::vector<RunStartTimes> read_run_starts(const fs::path& run, std::int64_t now_ns) {
  std::vector<ReadStart> starts;
  for (const auto& folder : earlier_starts(run))
    starts.push_back(read_start(folder, "starts/" + folder.filename().string()));
  // A new start that does not record yet has moved the records of the start before.
  if (readable_recorder(run, 0)) {
    auto last = read_start(run, "the last start");
    if (now_ns != 0) last.times.end_ns = last.times.worked_ns = std::max(now_ns, last.times.worked_ns);
    starts.push_back(std::move(last));
  }
  // Starts before the first one of this run belong to other runs, which have ended well.
  const auto facts = read_run_facts(run_json_of(run));
  if (const auto ours = static_cast<std::size_t>(facts.restarts.value_or(INT32_MAX)) + 1;
      ours < starts.size())
    starts.erase(starts.begin(), starts.end() - static_cast<std::ptrdiff_t>(ours));
  for (auto& start : starts) start.times.kind = kind_of_program(facts);
  std::optional<std::int64_t> from;  // the earliest step from which a later start went on
  bool from_known = true;
  std::vector<RunStartTimes> times;
  for (auto start = starts.rbegin(); start != starts.rend(); ++start) {
    if (from_known && from)
      find_lost(*start, *from);
    else if (!from_known && start->times.unknown.empty())
      start->times.unknown = "it is not known from which step the next start went on";
    if (start->recorder && start->times.first_step)
      from = std::min(from.value_or(INT64_MAX), *start->times.first_step);
    from_known &= start->recorder != nullptr;
    times.push_back(start->times);
  }
  std::reverse(times.begin(), times.end());
  return times;
}

}  // namespace farandole
