#include "farandole/doctor/run_evidence.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/host.h"
#include "farandole/base/process/process_state.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/process/machine.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/job_state.h"
#include "farandole/launch/supervisor/supervisor.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/recorder/node_file.h"

namespace farandole {
namespace {

constexpr std::chrono::seconds patience(3);  // For an answer of Slurm.

namespace fs = std::filesystem;
constexpr int most_ranks = 1 << 17;  // Limits memory if a number is damaged.

// "rank-0003.ftl", "rank-0003.json", "rank-0003.log".
std::optional<std::int64_t> number_of(const fs::path& file, std::string_view before,
                                      std::string_view extension) {
  const auto name = file.stem().string();
  if (file.extension() != extension || !name.starts_with(before)) return std::nullopt;
  const auto number = parse_number<std::int64_t>(std::string_view(name).substr(before.size()));
  return number && *number >= 0 ? number : std::nullopt;
}

class Gatherer {
 public:
  explicit Gatherer(const fs::path& folder) { run_.folder = folder; }

  RunEvidence gather() {
    std::error_code error;
    if (!fs::is_directory(run_.folder, error)) {
      refuse_foreign();
      throw UserError(
          fmt::format("{} is not a folder; name the run directory of --run-dir", run_.folder.string()));
    }
    run_.now_ns = real_time_ns();
    read_launch();
    read_lease();
    read_run_json();
    read_recorders();
    read_logs();
    read_progress();
    refuse_nothing();
    complete();
    return std::move(run_);
  }

 private:
  RankEvidence& rank(std::int64_t number) {
    for (auto next = run_.ranks.size(); next <= static_cast<std::size_t>(number); ++next)
      run_.ranks.emplace_back().rank = static_cast<int>(next);
    return run_.ranks[static_cast<std::size_t>(number)];
  }

  // The files of a folder that were listed before an error are still read.
  void note(const fs::path& folder, const std::error_code& failure) {
    std::error_code ignored;
    if (failure && fs::symlink_status(folder, ignored).type() != fs::file_type::not_found)
      run_.troubles.push_back(fmt::format("{} cannot be read: {}", folder.string(), failure.message()));
  }

  // Empty if the file does not exist or cannot be read.
  std::string contents_of(const fs::path& file) {
    try {
      return read_whole_file(file).value_or("");
    } catch (const Error& error) {
      run_.troubles.emplace_back(error.what());
      return "";
    }
  }

  std::vector<fs::path> files_in(const fs::path& folder) {
    std::error_code failure;
    std::vector<fs::path> files;
    for (fs::directory_iterator entry(folder, failure); !failure && entry != fs::directory_iterator();
         entry.increment(failure))
      files.push_back(entry->path());
    note(folder, failure);
    std::sort(files.begin(), files.end());
    return files;
  }

  // Reads only the records of the last start. A start whose launcher was killed has at most
  // records of its ranks.
  void read_launch() {
    bool readable = true;
    try {
      run_.job = read_job(run_.folder / "launch" / "job.json");
    } catch (const Error& error) {
      readable = false;
      run_.troubles.emplace_back(error.what());
    }
    for (const auto& file : files_in(run_.folder / "launch"))
      if (number_of(file, "rank-", ".json")) contents_of(file);
    auto records = read_records(run_.folder / "launch");
    const auto newest = std::max_element(
        records.begin(), records.end(), [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
    if (newest == records.end()) return;
    std::string launch = newest->launch;
    if (run_.job && run_.job->start_ns > newest->start_ns) launch = run_.job->launch;
    if (run_.job && run_.job->launch != launch) run_.job.reset();
    run_.start_unrecorded = readable && !run_.job;
    for (auto& record : records)
      if (record.launch == launch && record.rank >= 0 && record.rank < most_ranks) {
        auto& there = rank(record.rank);
        there.host = record.host;
        there.end = std::move(record);
      }
  }

  // When the launcher's job ended, as far as its records tell; 0: they have no end.
  std::int64_t ended_ns() const {
    std::int64_t last = run_.job ? run_.job->end_ns : 0;
    for (const auto& one : run_.ranks)
      if (one.end) last = std::max(last, one.end->time_ns);
    return last;
  }

  // The launcher's records about a job that has ended cannot be about a rank that lives. If the processes of
  // its host cannot be seen, a sign of life must come while this process looks, because the last one of a
  // rank that was killed is also young at first.
  void read_lease() {
    lease_ = find_lease_holder(run_.folder);
    if (!lease_) return;
    constexpr std::int64_t young_ns = 10 * ns_per_second, beat_ns = 5 * ns_per_second;
    const bool young = run_.now_ns - lease_->changed_ns < young_ns;
    run_.lease_alive = lease_->alive
                           ? *lease_->alive
                           : young && lease_->changed_ns > ended_ns() + beat_ns && lease_beats(run_.folder);
    if (run_.lease_alive && ended_ns() != 0) leave_launch_out();
  }

  void read_run_json() {
    run_.facts = read_run_facts(run_json_of(run_.folder));
    run_.troubles.insert(run_.troubles.end(), run_.facts.warnings.begin(), run_.facts.warnings.end());
  }

  // Returns when the last start began; 0 if unknown.
  std::int64_t began_ns() const {
    if (run_.job) return run_.job->start_ns;
    std::int64_t first = 0;
    for (const auto& one : run_.ranks)
      if (one.end && (first == 0 || one.end->start_ns < first)) first = one.end->start_ns;
    return first;
  }

  std::vector<fs::path> recorders() {
    const auto folder = run_.folder / "recorder";
    std::error_code failure;
    auto destinations = recorders_in(folder, failure);
    note(folder, failure);
    return destinations;
  }

  void read_recorders() {
    std::vector<std::pair<std::int64_t, RecorderEvidence>> found;  // Ordered by rank.
    std::vector<RunStart> starts{{began_ns(), 0}};
    for (const auto& destination : recorders()) {
      const auto number = number_of(destination, "rank-", ".ftl");
      if (!number || *number >= most_ranks) continue;
      auto evidence = read_recorder_evidence(readable_at(destination));
      if (!evidence.trouble.empty()) run_.troubles.push_back(evidence.trouble);
      if (!evidence.readable) continue;
      if (evidence.trouble.empty())
        starts.push_back({evidence.start_ns, evidence.world_size, evidence.last_ns});
      found.emplace_back(*number, std::move(evidence));
    }
    take_recorders(std::move(found), last_of(starts));
    if (launch_is_over_before_recording()) leave_launch_out();
  }

  // Returns whether the launcher's records belong to an earlier start. The newer start has no launcher's
  // record yet, or will never have one.
  bool launch_is_over_before_recording() const {
    return std::any_of(run_.ranks.begin(), run_.ranks.end(), [](const RankEvidence& one) {
      if (!one.recorder || !one.recorder->trouble.empty() || !one.end || one.end->time_ns == 0) return false;
      const bool one_clock = one.recorder->host == one.end->host;
      return one.recorder->start_ns > one.end->time_ns + (one_clock ? 0 : clocks_differ_ns);
    });
  }

  void leave_launch_out() {
    run_.job.reset();
    run_.start_unrecorded = false;
    for (auto& one : run_.ranks) one.end.reset();
    run_.troubles.emplace_back("the launcher's records belong to an earlier start and are left out");
  }

  void take_recorders(std::vector<std::pair<std::int64_t, RecorderEvidence>> found, const RunStart& last) {
    std::size_t earlier = 0;
    for (auto& [number, evidence] : found) {
      if (is_earlier({evidence.start_ns, evidence.world_size, evidence.last_ns}, last)) {
        ++earlier;
        continue;
      }
      auto& there = rank(number);
      if (there.host.empty()) there.host = evidence.host;
      world_size_ = std::max(world_size_, evidence.world_size);
      there.recorder = std::move(evidence);
    }
    if (earlier > 0) run_.troubles.push_back(earlier_starts_text(earlier));
  }

  void read_logs() {
    const std::int64_t began = began_ns();
    for (const auto& file : files_in(run_.folder / "logs")) {
      const auto number = number_of(file, "rank-", ".log");
      if (!number || *number >= most_ranks) continue;
      auto log = read_log(file);
      // The log's times are local. They may come from another time zone if the folder was copied.
      constexpr std::int64_t zones_differ = 27 * 3600 * ns_per_second;
      struct stat status {};
      const bool old_file = ::stat(file.c_str(), &status) == 0 &&
                            std::int64_t{status.st_mtim.tv_sec + 5} * ns_per_second < began;
      if (!log.found ||
          (began != 0 && (old_file || (log.start_ns != 0 && log.start_ns + zones_differ < began))))
        continue;
      auto& there = rank(*number);
      if (there.host.empty()) there.host = log.host;
      there.log = std::move(log);
    }
    for (auto& one : run_.ranks)
      if (!one.log.found && one.end && !one.end->last_words.empty())
        one.log = read_last_words(one.end->last_words);
  }

  void read_progress() {
    constexpr std::uint64_t last_bytes = std::uint64_t{1} << 20;
    try {
      farandole::read_lines(run_.folder / "metrics.jsonl", last_bytes, [&](std::string_view line) {
        const auto json = try_parse_json(line);
        if (!json.is_object()) return;
        if (const auto step = json.find("step"); step != json.end() && step->is_number_integer())
          run_.last_step = step->get<std::int64_t>();
        const auto loss = json.find("loss");
        if (loss == json.end()) return;
        if (!loss->is_null())
          run_.nonfinite_since.reset();
        else if (!run_.nonfinite_since)
          run_.nonfinite_since = run_.last_step;
      });
    } catch (const Error& error) {
      run_.troubles.emplace_back(error.what());
    }
    for (const auto& file : files_in(run_.folder / "checkpoints"))
      if (const auto step = step_of_checkpoint(file))
        run_.checkpoint_step = std::max(run_.checkpoint_step.value_or(0), *step);
    run_.kind = kind_of_program(run_.facts, run_.job ? run_.job->program : std::vector<std::string>());
    if (!run_.checkpoint_step && is_of_users(run_.kind))
      run_.other_checkpoint = newest_checkpoint_of_program(run_.folder).string();
  }

  void refuse_foreign() const {
    if (const auto foreign = foreign_format(run_.folder)) throw CorruptInput(*foreign);
  }

  void refuse_nothing() const {
    const bool something =
        run_.job || run_.facts.found || run_.last_step || run_.checkpoint_step || !run_.ranks.empty();
    if (something) return;
    if (!run_.troubles.empty())
      throw CorruptInput(
          fmt::format("nothing in {} can be read: {}", run_.folder.string(), run_.troubles.front()));
    refuse_foreign();
    throw UserError(
        fmt::format("{} is not a run directory: it has no run.json, recorder, logs or launch; name the run "
                    "directory of --run-dir",
                    run_.folder.string()));
  }

  void complete() {
    std::int64_t world = world_size_;
    if (run_.job)
      world = run_.job->ranks;
    else if (run_.facts.ranks)
      world = std::max(world, *run_.facts.ranks);
    if (world > 0 && world <= most_ranks) {
      rank(world - 1);
      run_.ranks.resize(static_cast<std::size_t>(world));
    }
    for (std::size_t r = 0; r < run_.ranks.size(); ++r)
      if (run_.ranks[r].host.empty() && r < run_.facts.hosts.size()) run_.ranks[r].host = run_.facts.hosts[r];
    struct statvfs status {};
    if (::statvfs(run_.folder.c_str(), &status) == 0)
      run_.free_bytes =
          static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
    look_for_processes();
    if (run_.job) run_.slurm_state = run_.job->job_state;
    // At the end of the job, the launcher could only see that the job was ending.
    const auto found = run_.slurm_state.find("JobState");
    const std::string state = found == run_.slurm_state.end() ? "" : found->second;
    if (run_.job && (state.empty() || state == "COMPLETING" || state == "RUNNING"))
      if (auto now = ask_for_recorded_job(run_.job->slurm, patience); !now.empty() && ended_with(now))
        run_.slurm_state = std::move(now);
  }

  // A job that went on long after this start of the ranks did not end it.
  bool ended_with(const JobState& job) const {
    const auto end = job.find("EndUnix");
    const auto end_s = end == job.end() ? std::nullopt : parse_number<std::int64_t>(end->second);
    constexpr std::int64_t most_s = 600;  // The job still writes its report, and ends its other processes.
    return !end_s || run_.job->end_ns == 0 || *end_s <= run_.job->end_ns / 1'000'000'000 + most_s;
  }

  void look_for_processes() {
    const auto here = host_name();
    if (run_.job && run_.job->end_ns == 0 && run_.job->host == here)
      run_.launcher_alive = state_of_process(run_.job->pid, run_.job->start_ns) != '\0';
    for (auto& one : run_.ranks) {
      if (one.end || !one.recorder || one.recorder->closed || one.host != here) continue;
      one.state = state_of_process(one.recorder->pid, one.recorder->start_ns);
      one.alive = one.state != '\0';
      one.pid = one.recorder->pid;
    }
    look_for_stopped_helpers();
    if (!run_.lease_alive) return;
    auto& leader = rank(0);
    leader.alive = true;
    leader.pid = lease_->pid;
    if (leader.host.empty()) leader.host = lease_->host;
    const auto process = lease_->alive ? read_process_state(lease_->pid) : std::nullopt;
    if (process) leader.state = process->state;
  }

  // Supervisors are children of the launcher, or of its mpirun on this machine.
  void look_for_stopped_helpers() {
    if (!run_.launcher_alive) return;
    std::map<std::int64_t, std::string> stopped;  // By process id: ranks have mpirun in common.
    const auto look = [&](std::int64_t pid, const std::string& who) {
      if (const auto process = read_process_state(pid); process && process->state == 'T')
        stopped.emplace(pid, who);
    };
    look(run_.job->pid, "the launcher");
    for (const auto& one : run_.ranks) {
      if (!one.alive) continue;
      std::vector<std::int64_t> line = {one.pid};  // From the rank up to the launcher.
      while (line.back() > 1 && line.back() != run_.job->pid) {
        const auto process = read_process_state(line.back());
        line.push_back(process ? process->parent : 0);
      }
      const std::ptrdiff_t above = run_.job->starter == own_starter ? 1 : 2;
      if (line.back() != run_.job->pid || std::ssize(line) < above + 2) continue;
      if (above > 1) look(line.end()[-2], run_.job->starter);
      look(line.end()[-above - 1], fmt::format("the supervisor of rank {}", one.rank));
    }
    for (const auto& [pid, who] : stopped) run_.stopped_helpers.push_back({who, pid});
  }

  RunEvidence run_;
  int world_size_ = 0;
  std::optional<LeaseHolder> lease_;
};

}  // namespace

RunEvidence read_run_evidence(const fs::path& folder) {
  return Gatherer(folder).gather();
}

}  // namespace farandole
