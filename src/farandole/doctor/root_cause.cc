#include "farandole/doctor/root_cause.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fmt/format.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/doctor/descriptions.h"
#include "farandole/launch/outcome.h"

namespace farandole {
namespace {

// Returns whether the rank's newest collective ended with an error: the rank has left all its spans, but has
// not closed its recorder.
bool lost_peer_in(const RecorderEvidence& recorder, const Activity& call) {
  constexpr std::int64_t a_moment = 1'000'000'000;
  return !recorder.doing && call.end_ns + a_moment >= recorder.last_ns;
}

std::string word_of(const std::map<std::string, std::string>& state, const char* field) {
  const auto found = state.find(field);
  return found == state.end() ? "" : found->second;
}

std::string slurm_word(const RunEvidence& run, const char* field) {
  return word_of(run.slurm_state, field);
}

// Returns when Slurm ends or has ended the job because of its time limit; 0 if unknown.
std::int64_t limit_ns(const RunEvidence& run) {
  if (!run.job) return 0;
  std::string text;
  if (const auto end = run.job->slurm.find("JOB_END_TIME"); end != run.job->slurm.end()) text = end->second;
  // The state as the launcher read it. For a job that is ending or has ended, EndTime is the end itself.
  const auto& state = run.job->job_state;
  if (text.empty() && word_of(state, "JobState") == "RUNNING") text = word_of(state, "EndUnix");
  const auto end_s = parse_number<std::int64_t>(text);
  return end_s && *end_s < INT64_MAX / ns_per_second ? *end_s * ns_per_second : 0;
}

// Returns why Slurm ended the job, if it did. The source is the job's state, or, if this is lost, the
// messages of Slurm's daemons in the step's output.
std::optional<RootCause> ended_by_slurm(const RunEvidence& run) {
  constexpr std::pair<std::string_view, Cause> states[] = {
      {"TIMEOUT", Cause::time_limit},          {"DEADLINE", Cause::time_limit},
      {"OUT_OF_MEMORY", Cause::out_of_memory}, {"NODE_FAIL", Cause::host_lost},
      {"BOOT_FAIL", Cause::host_lost},         {"PREEMPTED", Cause::preempted},
      {"CANCELLED", Cause::cancelled}};
  const auto state = slurm_word(run, "JobState");
  for (const auto& [word, cause] : states)
    if (state.starts_with(word))
      return RootCause{
          cause,
          {},
          {},
          fmt::format("Slurm reports {} for job {}", state,
                      run.job && run.job->slurm.contains("JOB_ID") ? run.job->slurm.at("JOB_ID") : "?")};
  if (slurm_word(run, "Reason") == "TimeLimit")
    return RootCause{Cause::time_limit, {}, {}, "Slurm's reason is TimeLimit"};
  constexpr std::pair<std::string_view, Cause> dues[] = {{"DUE TO TIME LIMIT", Cause::time_limit},
                                                         {"DUE TO PREEMPTION", Cause::preempted},
                                                         {"DUE TO JOB REQUEUE", Cause::requeued},
                                                         {"DUE TO NODE FAILURE", Cause::host_lost},
                                                         {"CANCELLED AT", Cause::cancelled}};
  for (const auto& [words, cause] : dues)
    if (run.job && !run.job->slurm.empty() && run.job->starter_said.find(words) != std::string::npos)
      return RootCause{cause, {}, {}, fmt::format("slurmstepd reported {}", words)};
  return std::nullopt;
}

// Returns why the ranks were asked to stop by signal `asked` at `asked_ns`.
RootCause asked_to_stop(const RunEvidence& run, int asked, std::int64_t asked_ns) {
  const auto limit = limit_ns(run);
  const auto left = limit - asked_ns;
  constexpr std::int64_t kill_wait = 60 * ns_per_second, warning = 15 * 60 * ns_per_second;
  const bool near_limit =
      limit != 0 && asked_ns != 0 && left < (asked == SIGUSR1 ? warning : kill_wait) && left > -5 * kill_wait;
  // Slurm also cancels the step when the first rank has ended after its checkpoint.
  if (const auto by_slurm = ended_by_slurm(run);
      by_slurm && !(near_limit && asked == SIGUSR1 && by_slurm->cause == Cause::cancelled))
    return *by_slurm;
  if (near_limit)
    return {Cause::time_limit,
            {},
            {},
            left > 0 ? fmt::format("{} before the time limit of its Slurm job", describe_seconds(left))
                     : "at the time limit of its Slurm job"};
  if (asked != 0) return {Cause::interrupted, {}, {}, describe_signal(asked)};
  return {Cause::interrupted, {}, {}, run.job ? run.job->message : ""};
}

Cause cause_of_code(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::done:
      return Cause::done;
    case ExitCode::user_error:
      return Cause::refused;
    case ExitCode::corrupt_input:
      return Cause::corrupt_input;
    case ExitCode::preempted:
      return Cause::preempted;
    default:
      return Cause::failed;
  }
}

const RankEvidence& evidence_of(const RunEvidence& run, int rank) {
  return run.ranks.at(static_cast<std::size_t>(rank));
}

// srun also cancels the step because a rank was killed. A cancellation kills the supervisors together with
// their ranks, so that no supervisor can record the end of its rank.
bool ended_before_others(const RunEvidence& run, const RankRecord& end) {
  return end.time_ns != 0 && !end.told && !slurm_word(run, "JobState").starts_with("CANCELLED");
}

RootCause classify(const RunEvidence& run, const RankRecord& end) {
  RootCause root_cause{cause_of_code(end.exit_code), end.rank, end, ""};
  const auto& log = evidence_of(run, end.rank).log;
  const auto& recorder = evidence_of(run, end.rank).recorder;
  // A step had begun, so the run was not refused.
  if (root_cause.cause == Cause::refused && recorder && recorder->step >= 0) root_cause.cause = Cause::failed;
  if (end.signal == SIGKILL) {
    auto by_slurm = ended_by_slurm(run);
    if (by_slurm && by_slurm->cause == Cause::cancelled && ended_before_others(run, end)) by_slurm.reset();
    root_cause.cause = by_slurm ? by_slurm->cause : Cause::killed;
    if (by_slurm) root_cause.why = by_slurm->why;
    if (!end.out_of_memory.empty())
      root_cause.cause = Cause::out_of_memory, root_cause.why = end.out_of_memory;
  } else if (end.signal == SIGINT || end.signal == SIGTERM || end.signal == SIGHUP || end.signal == SIGUSR1 ||
             end.signal == SIGUSR2) {
    root_cause.cause = Cause::interrupted;
    root_cause.why = describe_signal(end.signal);
  } else if (end.signal != 0) {
    root_cause.cause = log.uncaught_exception ? Cause::uncaught_exception : Cause::crashed;
    root_cause.why = log.uncaught_exception ? log.error : "";
  } else if (root_cause.cause == Cause::preempted) {
    const auto asked = asked_to_stop(run, end.asked_signal, end.asked_ns);
    if (end.asked_signal != 0) root_cause.why = asked.why;
    root_cause.rank.reset();
  } else if (root_cause.cause != Cause::done) {
    root_cause.why = log.error;
  }
  return root_cause;
}

// Returns the ranks whose end is unknown although other ranks have ended.
std::vector<int> unheard_of(const RunEvidence& run, const std::vector<RankRecord>& ends) {
  std::vector<int> ranks;
  for (const auto& rank : run.ranks)
    if (std::none_of(ends.begin(), ends.end(), [&](const auto& end) { return end.rank == rank.rank; }))
      ranks.push_back(rank.rank);
  return ranks;
}

RootCause lost_with_host(const RunEvidence& run, int rank) {
  RootCause root_cause{Cause::host_lost, rank, {}, ""};
  if (const auto by_slurm = ended_by_slurm(run)) root_cause.why = by_slurm->why;
  const auto node = slurm_word(run, "FailedNode");
  if (!node.empty()) root_cause.why += (root_cause.why.empty() ? "" : ", failed node ") + node;
  for (const auto& one : run.ranks)
    for (const auto& loss : one.log.losses)
      if (root_cause.why.empty() && loss.find("does not answer") != std::string::npos) root_cause.why = loss;
  return root_cause;
}

// Returns whether there is evidence that ranks or hosts were lost, and not only that the job
// was asked to stop.
bool is_missed(const RunEvidence& run) {
  const auto by_slurm = ended_by_slurm(run);
  return (by_slurm && by_slurm->cause == Cause::host_lost) ||
         std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const auto& one) { return !one.log.losses.empty(); });
}

bool launcher_was_killed(const RunEvidence& run) {
  return run.job ? run.job->end_ns == 0 : run.start_unrecorded;
}

// Returns the rank whose supervisor mpirun or srun has seen die of SIGKILL.
std::optional<int> seen_killed(std::string_view starter_said) {
  constexpr std::pair<std::string_view, std::string_view> words[] = {{"process rank ", "exited on signal 9"},
                                                                     {": task ", ": Killed"}};
  for (const auto& [before, after] : words)
    if (const auto at = starter_said.find(before); at != starter_said.npos) {
      auto line = starter_said.substr(at + before.size());
      line = line.substr(0, line.find('\n'));
      const auto number = parse_number<int>(line.substr(0, line.find_first_not_of("0123456789")));
      if (number && line.find(after) != line.npos) return number;
    }
  return std::nullopt;
}

// Returns the rank without a record that mpirun, srun or other ranks report as lost, or else the first one
// that must be it because another rank ended with the exit code of a lost peer.
std::optional<int> lost_without_record(const RunEvidence& run, const std::vector<int>& unheard,
                                       bool lost_a_peer) {
  const auto seen = run.job ? seen_killed(run.job->starter_said) : std::nullopt;
  if (seen && std::count(unheard.begin(), unheard.end(), *seen) > 0) return seen;
  for (const auto& one : run.ranks)
    for (const auto& loss : one.log.losses)
      for (const int rank : unheard)
        if (loss.starts_with(fmt::format("rank {} ", rank))) return rank;
  return lost_a_peer && !unheard.empty() ? std::optional(unheard.front()) : std::nullopt;
}

// Returns whether the ends of all ranks of one host are unknown and those of another host are known.
bool host_is_gone(const RunEvidence& run, const std::vector<int>& unheard, int rank) {
  const auto& host = evidence_of(run, rank).host;
  if (host.empty()) return false;
  bool others = false;
  for (const auto& one : run.ranks) {
    const bool silent = std::count(unheard.begin(), unheard.end(), one.rank) > 0;
    if (one.host == host && !silent) return false;
    others |= one.host != host && !silent;
  }
  return others;
}

// Returns the rank that left with exit code 0 while the others went on: mpirun says so, or they lost it
// although it has not closed its recorder.
std::optional<RankRecord> left_early(const RunEvidence& run, const std::vector<RankRecord>& ends,
                                     bool lost_a_peer) {
  const auto named = run.job ? left_without_finalize(run.job->starter_said) : std::nullopt;
  for (const auto& end : ends) {
    const auto& recorder = evidence_of(run, end.rank).recorder;
    if (!end.failed() && !end.told && (end.rank == named || (lost_a_peer && recorder && !recorder->closed)))
      return end;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Cause cause) {
  constexpr std::array<std::string_view, 17> names = {
      "done",       "running",       "stalled",       "preempted", "requeued", "interrupted",
      "time limit", "cancelled",     "out of memory", "killed",    "crashed",  "uncaught exception",
      "refused",    "corrupt input", "failed",        "host lost", "unknown"};
  return names.at(static_cast<std::size_t>(cause));
}

std::int64_t stall_limit_ns(const std::vector<RankEvidence>& ranks) {
  constexpr std::int64_t unknown_limit_ns = 10'000'000'000;
  std::int64_t limit = 0;
  for (const auto& rank : ranks)
    if (rank.recorder && rank.recorder->stall_limit_ns > 0)
      limit = limit == 0 ? rank.recorder->stall_limit_ns : std::min(limit, rank.recorder->stall_limit_ns);
  return limit > 0 ? limit : unknown_limit_ns;
}

std::optional<StalledCall> find_stalled_call(const std::vector<RankEvidence>& ranks) {
  std::vector<RankProgress> progress;
  for (const auto& rank : ranks) {
    if (!rank.recorder) continue;
    const auto& recorder = *rank.recorder;
    auto& to = progress.emplace_back();
    to.rank = rank.rank;
    to.all_communicators = false;
    if (rank.is_stopped()) to.state = RankProgress::State::stopped;
    for (const auto& [communicator, call] : recorder.calls)
      to.calls.push_back({communicator, call.sequence + 1,
                          !recorder.closed && (call.end_ns == 0 || lost_peer_in(recorder, call)),
                          call.start_ns, call.operation, call.name});
  }
  return find_stalled_call(progress);
}

bool no_rank_began(const RunEvidence& run) {
  return run.job && run.job->end_ns != 0 && run.job->exit_code != 0 &&
         std::none_of(run.ranks.begin(), run.ranks.end(),
                      [](const auto& one) { return one.end || one.recorder || one.log.found; });
}

// Rank 0 writes into run.json that it lost a peer. mpirun may kill its supervisor before it
// has recorded that.
std::vector<RankRecord> known_ends(const RunEvidence& run) {
  constexpr int peer_lost = static_cast<int>(ExitCode::peer_lost);
  std::vector<RankRecord> ends;
  for (const auto& rank : run.ranks) {
    if (rank.end) {
      ends.push_back(*rank.end);
    } else if (rank.log.exit_code || rank.log.signal) {
      RankRecord end;
      end.rank = rank.rank;
      end.host = rank.host;
      end.exit_code = rank.log.exit_code.value_or(0);
      end.signal = rank.log.signal.value_or(0);
      end.told = end.signal == SIGTERM;
      ends.push_back(std::move(end));
    } else if (rank.rank == 0 && run.facts.exit_code == peer_lost) {
      ends.push_back({.host = rank.host, .exit_code = peer_lost});
    }
  }
  return ends;
}

RootCause find_root_cause(const RunEvidence& run, const std::optional<StalledCall>& call) {
  const auto ends = known_ends(run);
  const auto unheard = unheard_of(run, ends);
  const auto first = first_failure(ends);
  const bool lost_a_peer =
      first && first->signal == 0 && first->exit_code == static_cast<int>(ExitCode::peer_lost);
  if (first && !first->told && !lost_a_peer) return classify(run, *first);
  for (const auto& rank : run.ranks)
    if (!rank.log.stall_end.empty())
      return {Cause::stalled,
              call && !call->missing.empty() ? std::optional(call->missing.front()) : std::nullopt,
              {},
              rank.log.stall_end};
  const bool asked_by_launcher = run.job && !run.job->signals.empty();
  const auto by_slurm = ended_by_slurm(run);
  if (const auto left = left_early(run, ends, lost_a_peer); left && !asked_by_launcher && !by_slurm)
    return {Cause::failed, left->rank, *left, ""};
  if (!ends.empty() && (!asked_by_launcher || lost_a_peer || is_missed(run)))
    for (const int rank : unheard)
      if (host_is_gone(run, unheard, rank)) return lost_with_host(run, rank);
  // A rank ended because it lost one that left no record.
  if (lost_a_peer && launcher_was_killed(run) && !unheard.empty())
    return {Cause::unknown, unheard.front(), {}, std::string(killed_launcher)};
  if (run.job && run.job->starter_signal != 0 && !asked_by_launcher && !by_slurm)
    return {Cause::killed,
            {},
            {},
            fmt::format("{} was killed by {}", run.job->starter, describe_signal(run.job->starter_signal))};
  // If the launcher goes on, only a supervisor that was killed leaves no record. Its rank ends with it.
  if (const auto lost = lost_without_record(run, unheard, lost_a_peer);
      lost && run.job && run.job->end_ns != 0 && !asked_by_launcher && !by_slurm)
    return {Cause::killed, lost, {}, ""};
  if (first && first->told) {
    const auto* signal = asked_by_launcher ? &run.job->signals.front() : nullptr;
    auto root_cause = asked_to_stop(run, signal != nullptr ? signal->number : first->asked_signal,
                                    signal != nullptr ? signal->time_ns : first->asked_ns);
    if (first->exit_code == static_cast<int>(ExitCode::preempted) && first->signal == 0)
      root_cause.cause = Cause::preempted;
    root_cause.end = first;
    if ((root_cause.cause == Cause::interrupted || root_cause.cause == Cause::preempted) &&
        launcher_was_killed(run))
      root_cause.why += fmt::format("; {}", killed_launcher);
    return root_cause;
  }
  if (first) return classify(run, *first);
  if (by_slurm) return *by_slurm;
  if (!ends.empty() && unheard.empty()) return {Cause::done, {}, {}, ""};
  if (!ends.empty() && run.job && run.job->end_ns != 0)
    return {Cause::unknown, unheard.front(), {}, run.job->message};
  // The supervisors were killed, and the launcher knows by which signal it was asked to end the job.
  if (asked_by_launcher && run.job->end_ns != 0) {
    const auto& signal = run.job->signals.front();
    return asked_to_stop(run, signal.number, signal.time_ns);
  }
  if (run.facts.exit_code) {
    RootCause root_cause{cause_of_code(static_cast<int>(*run.facts.exit_code)), {}, {}, ""};
    root_cause.why = fmt::format("run.json reports exit code {}", *run.facts.exit_code);
    if (launcher_was_killed(run)) root_cause.why += fmt::format("; {}", killed_launcher);
    return root_cause;
  }
  if (no_rank_began(run) && cause_of_code(run.job->exit_code) == Cause::refused)
    return {Cause::refused, {}, {}, run.job->message};
  if (no_rank_began(run) && !run.job->starter_said.empty())
    return {Cause::failed, {}, {}, run.job->starter_said};
  return {Cause::unknown, {}, {}, run.job && run.job->end_ns != 0 ? run.job->message : ""};
}

}  // namespace farandole
