// The evidence for a diagnosis, and other problems of the run.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/text/phrases.h"
#include "farandole/doctor/diagnosis_parts.h"

namespace farandole {
namespace {

constexpr std::int64_t little_space = std::int64_t{1} << 30;

class Finder {
 public:
  Finder(const RunEvidence& run, const Diagnosis& diagnosis) : run_(run), diagnosis_(diagnosis) {}

  std::vector<std::string> find() {
    job();
    root_cause();
    watch();
    progress();
    space();
    memory();
    versions();
    return std::move(lines_);
  }

 private:
  void add(std::string line) { lines_.push_back(std::move(line)); }

  void job() {
    if (run_.job) {
      const auto& job = *run_.job;
      add(fmt::format("farandole run {} started {} ranks on {} with {} at {}{}", job.version, job.ranks,
                      job.host, job.starter, time_of(job.start_ns),
                      job.end_ns == 0 ? "; it has not recorded its end"
                                      : fmt::format(" and ended at {} with exit code {}", time_of(job.end_ns),
                                                    job.exit_code)));
      if (!job.message.empty()) add("its message: " + job.message);
      for (const auto& signal : job.signals)
        add(fmt::format("farandole run received {} at {}", describe_signal(signal.number),
                        time_of(signal.time_ns)));
      if (const auto id = job.slurm.find("JOB_ID"); id != job.slurm.end()) slurm(id->second);
    }
    if (run_.facts.restarts.value_or(0) > 0)
      add(fmt::format("this is restart {} in this folder; the report covers only the last start",
                      *run_.facts.restarts));
    const auto starts = earlier_starts(run_.folder);
    constexpr std::size_t most_starts = 3;
    const auto shown = std::min(starts.size(), most_starts);
    if (shown < starts.size())
      add(fmt::format("{} has {} earlier starts; these are the last ones", (run_.folder / "starts").string(),
                      starts.size()));
    for (auto start = starts.end() - static_cast<std::ptrdiff_t>(shown); start != starts.end(); ++start)
      add(fmt::format("what an earlier start has recorded is kept: farandole doctor {}", start->string()));
  }

  void slurm(const std::string& id) {
    if (run_.slurm_state.empty()) return add(fmt::format("Slurm job {}; its state is unknown here", id));
    std::vector<std::string> words;
    for (const auto& [field, value] : run_.slurm_state)
      if (field != "EndUnix") words.push_back(field + "=" + value);
    add(fmt::format("Slurm job {}: {}", id, fmt::join(words, " ")));
  }

  void root_cause() {
    if (!diagnosis_.rank) return;
    const auto& rank = run_.ranks.at(static_cast<std::size_t>(*diagnosis_.rank));
    if (rank.end && rank.end->peak_memory_bytes > 0)
      add(fmt::format(
          "rank {} used at most {} of memory{}", rank.rank, describe_bytes(rank.end->peak_memory_bytes),
          rank.end->memory_limit_bytes > 0 ? fmt::format(", the limit of its control group is {}",
                                                         describe_bytes(rank.end->memory_limit_bytes))
                                           : ""));
    if (!rank.recorder && !rank.alive)
      add(fmt::format("rank {} has no flight recorder, so its step and phase are unknown", rank.rank));
    if (rank.log.last_lines.empty()) return;
    constexpr std::size_t most = 4;
    const auto& lines = rank.log.last_lines;
    for (auto i = lines.size() - std::min(most, lines.size()); i < lines.size(); ++i)
      add(fmt::format("rank {} printed: {}", rank.rank, lines[i]));
  }

  // Reports of the watchdogs over stalls and losses. Only the first of each kind is shown, because the
  // reports are similar on all ranks.
  void watch() {
    const auto first = [&](auto get) {
      for (const auto& rank : run_.ranks)
        if (const auto text = get(rank.log); !text.empty())
          return add(fmt::format("rank {} reported: {}", rank.rank, text));
    };
    first([](const LogEvidence& log) { return log.losses.empty() ? std::string() : log.losses.front(); });
    first([](const LogEvidence& log) { return log.stall; });
    first([](const LogEvidence& log) { return log.stall_end; });
  }

  void progress() {
    if (run_.last_step) add(fmt::format("metrics.jsonl ends at step {}", *run_.last_step));
    if (run_.checkpoint_step)
      add(fmt::format("the newest checkpoint is from step {}", *run_.checkpoint_step));
  }

  void space() {
    if (run_.job && run_.job->free_bytes && *run_.job->free_bytes < little_space)
      add(fmt::format("at the end, {} were free on the run directory's file system",
                      describe_bytes(*run_.job->free_bytes)));
    if (run_.free_bytes && *run_.free_bytes < little_space)
      add(fmt::format("{} are free on the file system of {}", describe_bytes(*run_.free_bytes),
                      run_.folder.string()));
    for (const auto& rank : run_.ranks)
      if (rank.log.disk_full)
        return add(fmt::format("rank {} reported that no space is left on a device", rank.rank));
  }

  void memory() {
    for (const auto& rank : run_.ranks)
      if (rank.log.memory_short) return add(fmt::format("rank {} could not allocate memory", rank.rank));
  }

  // "mpi: Open MPI v4.1.4 on ranks 0-2; Open MPI v4.1.6 on rank 3".
  void versions() {
    std::map<std::string, std::map<std::string, std::vector<int>>> ranks_by_value;
    for (const auto& rank : run_.ranks) {
      if (rank.recorder)
        for (const auto& [what, value] : rank.recorder->facts)
          ranks_by_value[what][value].push_back(rank.rank);
      if (rank.end && !rank.end->kernel.empty())
        ranks_by_value["kernel"][rank.end->kernel].push_back(rank.rank);
    }
    for (const auto& [what, values] : ranks_by_value) {
      if (values.size() < 2) continue;
      std::vector<std::string> parts;
      for (const auto& [value, ranks] : values)
        parts.push_back(fmt::format("{} on {}", value, describe_ranks(ranks)));
      add(fmt::format("{} differs between ranks: {}", what, fmt::join(parts, "; ")));
    }
  }

  const RunEvidence& run_;
  const Diagnosis& diagnosis_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> find_evidence(const RunEvidence& run, const Diagnosis& diagnosis) {
  return Finder(run, diagnosis).find();
}

}  // namespace farandole
