#include "farandole/base/run/earlier_starts.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <fmt/format.h>
#include <system_error>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* earlier_job = "job.earlier.json";
constexpr std::size_t most_recorded = 20;

int number_of_start(const fs::path& folder) {
  return parse_number<int>(folder.filename().string()).value_or(0);
}

void move_if_there(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(fmt::format("{} cannot be moved to {}, where the records of earlier starts are kept: {}",
                            from.string(), to.string(), error.message()));
}

// Returns whether the launcher of a start that wrote its run.json at `written_ns` has written this record.
// The launcher of the present start may have written its own already.
bool is_of_earlier(const fs::path& job, std::int64_t written_ns) try {
  const auto text = read_whole_file(job).value_or("");
  const auto json = try_parse_json(text);
  return json.is_object() && (json.contains("end_ns") || json.value("start_ns", INT64_MAX) < written_ns);
} catch (const std::exception&) {  // No record of a job.
  return false;
}

// Copies of these records help the doctor, but the start is kept without them too.
void copy_launch(const fs::path& from, const fs::path& to, std::int64_t written_ns) {
  std::error_code ignored;
  fs::create_directory(to, ignored);
  for (fs::directory_iterator entry(from, ignored), end; !ignored && entry != end; entry.increment(ignored))
    if (entry->path().filename().string().starts_with("rank-")) {
      std::error_code left;
      fs::copy_file(entry->path(), to / entry->path().filename(), left);
    }
  fs::rename(from / earlier_job, to / "job.json", ignored);
  if (ignored && is_of_earlier(from / "job.json", written_ns))
    fs::copy_file(from / "job.json", to / "job.json", ignored);
}

// A run that is killed every few minutes would fill its disk with recorders. What remains tells how
// the start ended.
void drop_old_recorders(const std::vector<fs::path>& starts) {
  std::error_code ignored;
  for (std::size_t i = 0; i + most_recorded < starts.size(); ++i) {
    fs::remove_all(starts[i] / "recorder", ignored);
    fs::remove(starts[i] / "timeline.json.gz", ignored);
  }
}

}  // namespace

std::vector<fs::path> earlier_starts(const fs::path& run_dir) {
  std::vector<fs::path> starts;
  std::error_code ignored;
  for (fs::directory_iterator entry(run_dir / "starts", ignored), end; !ignored && entry != end;
       entry.increment(ignored))
    if (number_of_start(entry->path()) > 0) starts.push_back(entry->path());
  std::sort(starts.begin(), starts.end(),
            [](const auto& a, const auto& b) { return number_of_start(a) < number_of_start(b); });
  return starts;
}

bool is_earlier_start(const fs::path& folder) {
  const auto start = (folder / "").lexically_normal().parent_path();
  return start.parent_path().filename() == "starts" && number_of_start(start) > 0;
}

void keep_earlier_start(const fs::path& run_dir) {
  std::error_code missing;
  const auto recorders = run_dir / "recorder", trace = run_dir / "timeline.json.gz";
  const bool recorded = fs::is_directory(recorders, missing) && !fs::is_empty(recorders, missing);
  if (!recorded && !fs::exists(trace, missing)) return;
  const auto starts = earlier_starts(run_dir);
  const auto next = starts.empty() ? 1 : number_of_start(starts.back()) + 1;
  const auto folder = run_dir / "starts" / fmt::format("{:04}", next);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(fmt::format("the folder {} cannot be created: {}", folder.string(), error.message()));
  fs::copy_file(run_json_of(run_dir), run_json_of(folder), error);
  copy_launch(run_dir / "launch", folder / "launch", changed_ns(run_json_of(run_dir)));
  for (const char* report : {"report.txt", "report.html"}) move_if_there(run_dir / report, folder / report);
  move_if_there(trace, folder / trace.filename());
  move_if_there(recorders, folder / recorders.filename());
  drop_old_recorders(earlier_starts(run_dir));
}

void keep_earlier_job(const fs::path& launch_folder) noexcept {
  std::error_code ignored;
  const auto earlier = launch_folder / earlier_job;
  // The record that is there belongs to the last start that recorded something.
  if (!fs::exists(earlier, ignored)) fs::rename(launch_folder / "job.json", earlier, ignored);
}

}  // namespace farandole
