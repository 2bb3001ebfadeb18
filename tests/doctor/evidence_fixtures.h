// Evidence of runs that ended in many ways, as plain values.
#pragma once

#include <cstdint>
#include <gmock/gmock.h>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

inline constexpr std::int64_t second = 1'000'000'000, noon = 1'800'000'000 * second;

inline RunEvidence run_of(int ranks) {
  RunEvidence run;
  run.folder = "run";
  run.now_ns = noon + 3600 * second;
  run.job.emplace();
  run.job->ranks = ranks;
  run.job->start_ns = noon - 3600 * second;
  run.job->end_ns = noon + second;
  for (int r = 0; r < ranks; ++r) {
    run.ranks.emplace_back();
    run.ranks.back().rank = r;
    run.ranks.back().host = r < ranks / 2 ? "node1" : "node2";
  }
  return run;
}

inline RankRecord& end(RankEvidence& rank, int exit_code, int signal = 0, bool told = false) {
  rank.end.emplace();
  rank.end->rank = rank.rank;
  rank.end->host = rank.host;
  rank.end->exit_code = exit_code;
  rank.end->signal = signal;
  rank.end->told = told;
  rank.end->time_ns = noon + (told ? second : 0);
  return *rank.end;
}

inline Activity call(std::uint32_t sequence, std::int64_t start_ns, bool open = true) {
  Activity activity{
      RecordKind::collective, Category::communication, "bucket 0", "allreduce", 1, sequence, start_ns, 0};
  if (!open) activity.end_ns = start_ns + 1;
  return activity;
}

// The rank is in `doing` or in the collective, after all collectives before `sequence`.
inline void record(RankEvidence& rank, std::uint32_t sequence, std::optional<Category> doing,
                   std::int64_t since_ns) {
  rank.recorder.emplace();
  rank.recorder->readable = true;
  rank.recorder->step = 12;
  rank.recorder->last_ns = since_ns;
  rank.recorder->calls[1] = doing ? call(sequence - 1, since_ns - second, false) : call(sequence, since_ns);
  Activity activity;
  activity.category = doing.value_or(Category::wait);
  activity.name = name_of(activity.category);
  activity.start_ns = since_ns;
  rank.recorder->doing = activity;
}

inline void in_slurm(RunEvidence& run, std::map<std::string, std::string> state, std::int64_t limit_ns = 0) {
  run.job->slurm = {{"JOB_ID", "7"}};
  if (limit_ns != 0) run.job->slurm["JOB_END_TIME"] = std::to_string(limit_ns / second);
  run.slurm_state = std::move(state);
}

// The diagnosis has this cause, and its verdict contains the text.
MATCHER_P2(Says, cause, text, "") {
  *result_listener << name_of(arg.cause) << ": " << arg.verdict;
  return arg.cause == cause && arg.verdict.find(text) != std::string::npos;
}

}  // namespace farandole
