#include "farandole/doctor/diagnosis.h"

#include <csignal>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "doctor/run_of.h"
#include <nlohmann/json.hpp>

namespace farandole {
namespace {

using evidence::noon;
using evidence::run_of;
using evidence::second;
using namespace ::testing;

RankRecord& end(RankEvidence& rank, int exit_code, int signal = 0, bool told = false) {
  rank.end.emplace();
  rank.end->rank = rank.rank;
  rank.end->host = rank.host;
  rank.end->exit_code = exit_code;
  rank.end->signal = signal;
  rank.end->told = told;
  rank.end->time_ns = noon + (told ? second : 0);
  return *rank.end;
}

Activity call(std::uint32_t sequence, std::int64_t start_ns, bool open = true) {
  Activity activity{
      RecordKind::collective, Category::communication, "bucket 0", "allreduce", 1, sequence, start_ns, 0};
  if (!open) activity.end_ns = start_ns + 1;
  return activity;
}

// The rank is in `doing` or in the collective, after all collectives before `sequence`.
void record(RankEvidence& rank, std::uint32_t sequence, std::optional<Category> doing,
            std::int64_t since_ns) {
  rank.recorder.emplace();
  rank.recorder->readable = true;
  rank.recorder->step = 12;
  rank.recorder->last_ns = since_ns;
  rank.recorder->calls[1] = doing ? call(sequence - 1, since_ns - second, false) : call(sequence, since_ns);
  Activity activity{.category = doing.value_or(Category::wait)};
  activity.name = name_of(activity.category);
  activity.start_ns = since_ns;
  rank.recorder->doing = activity;
}

void in_slurm(RunEvidence& run, std::map<std::string, std::string> state, std::int64_t limit_ns = 0) {
  run.job->slurm = {{"JOB_ID", "7"}};
  if (limit_ns != 0) run.job->slurm["JOB_END_TIME"] = std::to_string(limit_ns / second);
  run.slurm_state = std::move(state);
}

// The diagnosis has this cause, and its verdict contains the text.
MATCHER_P2(Says, cause, text, "") {
  *result_listener << name_of(arg.cause) << ": " << arg.verdict;
  return arg.cause == cause && arg.verdict.find(text) != std::string::npos;
}

TEST(Diagnosis, SaysInWhichWaysTheOthersEnded) {
  auto run = run_of(3);
  end(run.ranks[1], 137, SIGKILL);
  end(run.ranks[0], 70);
  end(run.ranks[2], 143, SIGTERM);
  record(run.ranks[1], 5, Category::backward, noon - second);
  for (const int waiting : {0, 2}) record(run.ranks[waiting], 5, std::nullopt, noon - second);
  for (const int waiting : {0, 2}) run.ranks[waiting].end->time_ns += second;
  EXPECT_THAT(diagnose(run), Says(Cause::killed,
                                  "ranks 0, 2 waited in allreduce #5 'bucket 0' for it and ended "
                                  "1.0 s later with exit code 70 and by signal 15."));
}

TEST(Diagnosis, BlamesTheKernelOnlyWithEvidence) {
  auto run = run_of(2);
  end(run.ranks[1], 0, SIGKILL).out_of_memory = "its control group counts 1 more out-of-memory kill";
  end(run.ranks[0], 0, SIGTERM, true);
  record(run.ranks[1], 5, Category::backward, noon - second);
  record(run.ranks[0], 5, std::nullopt, noon - second);
  EXPECT_THAT(diagnose(run),
              Says(Cause::out_of_memory,
                   "rank 1 on node2 was killed by signal 9 (out of memory: its control group "
                   "counts 1 more out-of-memory kill) in step 12, in backward, at 08:00:00 UTC; rank 0 "
                   "waited in allreduce #5 'bucket 0' for it and was stopped by the launcher 1.0 s later."));
  run.ranks[1].end->out_of_memory.clear();
  EXPECT_EQ(diagnose(run).cause, Cause::killed);
  in_slurm(run, {{"JobState", "OUT_OF_MEMORY"}});
  EXPECT_EQ(diagnose(run).cause, Cause::out_of_memory);
  in_slurm(run, {{"JobState", "NODE_FAIL"}});
  EXPECT_EQ(diagnose(run).cause, Cause::host_lost);
}

TEST(Diagnosis, NamesAHostOfWhichNothingIsHeard) {
  auto run = run_of(4);
  for (int r = 0; r < 2; ++r) {
    end(run.ranks[static_cast<std::size_t>(r)], 70);
    record(run.ranks[static_cast<std::size_t>(r)], 5, std::nullopt, noon);
  }
  record(run.ranks[2], 5, Category::data, noon);
  EXPECT_THAT(diagnose(run), Says(Cause::host_lost, "ranks 2, 3 were lost with host node2"));
  EXPECT_THAT(
      diagnose(run),
      Says(Cause::host_lost, "rank 2 was last seen in step 12, in data; ranks 0, 1 waited in allreduce"));
  EXPECT_EQ(diagnose(run).rank, 2);
  run.job->signals = {{SIGTERM, noon}};
  EXPECT_EQ(diagnose(run).cause, Cause::host_lost) << "Slurm ends the job later because of the host";
  run.job->signals.clear();
  end(run.ranks[3], 0, SIGTERM, true);
  EXPECT_NE(diagnose(run).cause, Cause::host_lost) << "its other rank was heard of";
}

// srun cancels the rest of a step because of the killed rank, and reports it.
TEST(Diagnosis, ARankThatWasKilledIsNotCancelled) {
  auto run = run_of(2);
  end(run.ranks[0], 0, SIGTERM, true);
  end(run.ranks[1], 0, SIGKILL);
  in_slurm(run, {{"JobState", "FAILED"}});
  run.job->starter_said = "slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-22T02:38:16 ***";
  EXPECT_EQ(diagnose(run).cause, Cause::killed);
  EXPECT_EQ(diagnose(run).rank, 1);
  run.ranks[1].end->time_ns = 0;
  EXPECT_EQ(diagnose(run).cause, Cause::cancelled) << "its supervisor was killed with it";
}

TEST(Diagnosis, TellsWhoStopsAJob) {
  auto run = run_of(2);
  for (auto& rank : run.ranks) end(rank, 0, SIGTERM, true);
  run.job->signals = {{SIGTERM, noon}};
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted);
  for (const auto& [state, cause] :
       {std::pair("TIMEOUT", Cause::time_limit), std::pair("CANCELLED", Cause::cancelled),
        std::pair("PREEMPTED", Cause::preempted)}) {
    in_slurm(run, {{"JobState", state}});
    EXPECT_EQ(diagnose(run).cause, cause);
  }
  in_slurm(run, {}, noon - 5 * second);
  EXPECT_THAT(diagnose(run), Says(Cause::time_limit, "at the time limit of its Slurm job"));
  in_slurm(run, {}, noon + 7200 * second);
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted);
  for (auto& rank : run.ranks) {
    end(rank, 75).asked_signal = SIGUSR1;
    rank.end->asked_ns = noon - second;
  }
  run.job->signals.clear();
  run.checkpoint_step = 400;
  in_slurm(run, {}, noon + 119 * second);
  EXPECT_THAT(diagnose(run), Says(Cause::preempted,
                                  "(120 s before the time limit of its Slurm job) at 08:00:00 UTC; "
                                  "its newest checkpoint is from step 400"));
  // When asked again, Slurm no longer knows the planned end.
  in_slurm(run, {{"JobState", "FAILED"}, {"EndUnix", std::to_string(noon / second)}});
  run.job->job_state = {{"JobState", "RUNNING"}, {"EndUnix", std::to_string(noon / second + 119)}};
  EXPECT_THAT(diagnose(run).verdict, HasSubstr("(120 s before the time limit of its Slurm job)"));
}

// For a requeued job, Slurm reports the state of the next start. The messages of its daemons
// belong to this start.
TEST(Diagnosis, TellsARequeuedJobFromACancelledOne) {
  auto run = run_of(2);
  for (auto& rank : run.ranks) end(rank, 0, SIGTERM, true);
  run.job->signals = {{SIGTERM, noon}};
  in_slurm(run, {{"JobState", "PENDING"}, {"Reason", "BeginTime"}});
  run.job->starter_said =
      "slurmstepd-node1: error: *** STEP 5.0 ON node1 CANCELLED AT 2026-11-21T23:14:57 DUE TO JOB REQUEUE "
      "***\n";
  const auto found = diagnose(run);
  EXPECT_THAT(found, Says(Cause::requeued,
                          "stopped because its Slurm job was requeued (slurmstepd reported DUE TO JOB"));
  EXPECT_EQ(name_of(found.cause), "requeued");
  EXPECT_THAT(found.next, Contains(HasSubstr("Slurm has requeued job 7 and will start it again")));
  EXPECT_EQ(name_of(Cause::unknown), "unknown");
}

TEST(Diagnosis, ARemedyFitsWhatWasTheMatter) {
  auto hung = run_of(2);
  for (auto& rank : hung.ranks) end(rank, 0, SIGTERM, true);
  hung.job->signals = {{SIGTERM, noon}};
  in_slurm(hung, {{"JobState", "TIMEOUT"}});
  EXPECT_THAT(diagnose(hung).next, Contains(HasSubstr("use a longer sbatch --time")));
  record(hung.ranks[0], 5, std::nullopt, noon - 1800 * second);
  record(hung.ranks[1], 5, Category::data, noon - 1800 * second);
  EXPECT_THAT(diagnose(hung),
              Says(Cause::time_limit,
                   "before that it hung: rank 0 waited 1801 s in allreduce #5 'bucket 0' for rank 1 on "
                   "node2, which was in step 12, in data for 1801 s"));
  EXPECT_THAT(diagnose(hung).next, Not(Contains(HasSubstr("use a longer sbatch --time"))))
      << "it waited for nothing";
  EXPECT_THAT(diagnose(hung).next, Contains(HasSubstr("--stall-abort")));
  EXPECT_THAT(diagnose(hung).next, Contains(HasSubstr("check the file system of --data")));

  auto starved = run_of(2);
  end(starved.ranks[1], 0, SIGABRT);
  starved.ranks[1].log.uncaught_exception = starved.ranks[1].log.memory_short = true;
  starved.ranks[1].log.error = "std::bad_alloc: std::bad_alloc";
  EXPECT_THAT(diagnose(starved).next, Contains(HasSubstr("a smaller --batch-size")));
  EXPECT_THAT(diagnose(starved).evidence, Contains("rank 1 could not allocate memory"));

  auto corrupt = run_of(1);
  end(corrupt.ranks[0], 65);
  EXPECT_THAT(diagnose(corrupt).next, Not(Contains(HasSubstr("checkpoint verify")))) << "there is none";
  corrupt.checkpoint_step = 60;
  EXPECT_THAT(diagnose(corrupt).next, Contains("farandole checkpoint verify run"));
}

// The launcher and the supervisor of rank 1 were killed together, so nobody recorded the end of rank 1.
TEST(Diagnosis, SaysThatTheLauncherWasKilledAlthoughARankRecordedALostPeer) {
  auto run = run_of(2);
  run.job->end_ns = 0;
  run.ranks[1].host = run.ranks[0].host;
  for (const bool told :
       {false, true}) {  // The supervisor of rank 0 may notice first that its launcher is gone.
    end(run.ranks[0], 70, 0, told);
    EXPECT_THAT(diagnose(run), Says(Cause::unknown, "no record of the end of rank 1"));
    EXPECT_THAT(diagnose(run), Says(Cause::unknown, "the launcher was killed before it recorded the end"));
    EXPECT_EQ(diagnose(run).rank, 1);
  }
}

TEST(Diagnosis, NamesWhomARunningJobWaitsFor) {
  auto run = run_of(3);
  run.job->end_ns = 0;
  for (auto& rank : run.ranks) {
    rank.alive = true;
    record(rank, 9, rank.rank == 0 ? std::optional(Category::checkpoint) : std::nullopt,
           run.now_ns - 2 * second);
  }
  EXPECT_EQ(diagnose(run).cause, Cause::running);
  run.now_ns += 60 * second;
  EXPECT_THAT(diagnose(run), Says(Cause::stalled, "ranks 1, 2 have waited 62 s"));
  EXPECT_EQ(diagnose(run).rank, 0);
  // The limit of the run counts, if it is known.
  for (auto& rank : run.ranks) rank.recorder->stall_limit_ns = 90 * second;
  EXPECT_THAT(diagnose(run),
              Says(Cause::running, "ranks 1, 2 have waited 62 s in allreduce #9 'bucket 0' for rank 0"));
  EXPECT_THAT(diagnose(run), Says(Cause::running, "A wait of 90 s counts as a hang."));
  for (auto& rank : run.ranks) rank.recorder->stall_limit_ns = 3 * second;
  EXPECT_EQ(diagnose(run).cause, Cause::stalled);
  run.ranks[0].log.place = "model.py:7 in save";
  EXPECT_THAT(diagnose(run).verdict, HasSubstr(", model.py:7 in save, for 62 s"));
}

// A process that is stopped needs no limit, wherever it was stopped.
TEST(Diagnosis, NamesARankThatIsStopped) {
  auto run = run_of(3);
  run.job->end_ns = 0;
  for (auto& rank : run.ranks) {
    rank.alive = true;
    rank.state = 'S';
    record(rank, 9, rank.rank != 2 ? std::optional(Category::backward) : std::nullopt, run.now_ns - second);
    rank.pid = 70 + rank.rank;
  }
  EXPECT_EQ(diagnose(run).cause, Cause::running);
  run.ranks[1].state = 'T';
  auto found = diagnose(run);
  EXPECT_THAT(found,
              Says(Cause::stalled, "rank 2 has waited 1.0 s in allreduce #9 'bucket 0' for ranks 0, 1"));
  EXPECT_THAT(found, Says(Cause::stalled, "; its process 71 is stopped (state T)."));
  EXPECT_EQ(found.rank, 1) << "it comes before rank 0, which is missing, too";
  EXPECT_THAT(found.next, Contains("continue it: kill -CONT 71"));
  for (auto& rank : run.ranks) record(rank, 9, std::nullopt, run.now_ns - second);
  found = diagnose(run);
  EXPECT_EQ(found.rank, 1) << "it was stopped within the collective";
  EXPECT_THAT(found.verdict, HasSubstr("ranks 0, 2 have waited 1.0 s in allreduce #9 'bucket 0' for rank 1"));
  for (auto& rank : run.ranks) rank.recorder->calls.clear();
  found = diagnose(run);
  EXPECT_EQ(found.rank, 1);
  EXPECT_THAT(found.verdict, HasSubstr("the run hangs: rank 1 on node2 in step 12, in wait: its process"));
}

// The run's own watch sees all hosts.
TEST(Diagnosis, BelievesTheStallReportOfTheRun) {
  auto run = run_of(2);
  run.job->end_ns = 0;
  run.launcher_alive = true;
  run.ranks[0].log.stall =
      "stall: rank 0 has waited 3.2 s in allreduce #3 'bucket 0'\n"
      "  rank 1 (pid 7 on node2) is missing: it is stopped (state T); kill -CONT 7 lets it go on";
  const auto found = diagnose(run);
  EXPECT_THAT(found, Says(Cause::stalled,
                          "the run hangs: rank 0 has waited 3.2 s in allreduce #3 'bucket 0'; rank 1 "
                          "(pid 7 on node2) is missing: it is stopped (state T)"));
  EXPECT_EQ(found.rank, 1);
}

TEST(Diagnosis, ListsVersionsThatDiffer) {
  auto run = run_of(4);
  for (auto& rank : run.ranks) {
    end(rank, 0).kernel = rank.rank == 3 ? "6.2" : "6.1";
    record(rank, 9, Category::forward, noon);
    rank.recorder->facts = {{"mpi", "4.1.4"}, {"libtorch", rank.rank == 0 ? "2.10" : "2.11"}};
  }
  const auto found = diagnose(run);
  EXPECT_EQ(found.cause, Cause::done);
  EXPECT_THAT(found.evidence, Contains("kernel differs between ranks: 6.1 on ranks 0-2; 6.2 on rank 3"));
  EXPECT_THAT(found.evidence, Contains("libtorch differs between ranks: 2.10 on rank 0; 2.11 on ranks 1-3"));
  EXPECT_THAT(found.evidence, Not(Contains(HasSubstr("mpi differs"))));
}

TEST(Diagnosis, MentionsALossThatIsNotFinite) {
  auto run = run_of(1);
  end(run.ranks[0], 0);
  EXPECT_THAT(diagnose(run).evidence, Not(Contains(HasSubstr("loss"))));
  run.nonfinite_since = 7;
  EXPECT_THAT(diagnose(run).evidence, Contains("the loss is not finite (NaN or infinite) since step 7"));
}

TEST(Diagnosis, OfNothingIsUnknown) {
  auto run = run_of(0);
  run.job.reset();
  EXPECT_EQ(diagnose(run).cause, Cause::unknown);
  run.facts.exit_code = 75;
  EXPECT_EQ(diagnose(run).cause, Cause::preempted);
  EXPECT_FALSE(diagnosis_text(run, diagnose(run)).empty());
}

// srun, torchrun or another launcher has started the ranks, which leave only their recorders.
TEST(Diagnosis, TellsFromRecordersWhichRanksDidNotCloseThem) {
  auto run = run_of(4);
  run.job.reset();
  for (const int rank : {0, 1, 2}) record(run.ranks[static_cast<std::size_t>(rank)], 5, std::nullopt, noon);
  for (const int rank : {0, 2}) {
    run.ranks[static_cast<std::size_t>(rank)].recorder->closed = true;
    run.ranks[static_cast<std::size_t>(rank)].recorder->doing.reset();
  }
  record(run.ranks[1], 5, Category::backward, noon - second);
  const auto killed = diagnose(run);
  EXPECT_THAT(killed, Says(Cause::unknown,
                           "; rank 1 did not close the flight recorder: killed, crashed, or ended by "
                           "_exit(); rank 3 left no flight recorder"));
  EXPECT_EQ(killed.rank, 1);
  EXPECT_EQ(killed.step, 12);
  EXPECT_EQ(killed.phase, "backward");
  const auto text = diagnosis_text(run, killed);
  EXPECT_THAT(text, ContainsRegex("1 +node1 +recorder open +12 +in backward"));
  EXPECT_THAT(text, ContainsRegex("2 +node2 +by itself +12"));
  EXPECT_THAT(text, ContainsRegex("3 +node2 +unknown"));
  run.ranks[1].recorder->closed = true;
  run.ranks[3].recorder = run.ranks[2].recorder;
  EXPECT_THAT(diagnose(run),
              Says(Cause::unknown, "ranks have closed their flight recorders and ended by themselves"));
  EXPECT_THAT(diagnose(run).next, Contains(HasSubstr("has their exit codes")));
  for (auto& rank : run.ranks) record(rank, 5, std::nullopt, noon);
  record(run.ranks[2], 5, Category::data, noon);
  EXPECT_THAT(diagnose(run),
              Says(Cause::unknown, "all ranks that have one did not close the flight recorder"));
  EXPECT_THAT(diagnose(run),
              Says(Cause::unknown, "ranks 0, 1, 3 waited in allreduce #5 'bucket 0' for rank 2"));
  EXPECT_EQ(diagnose(run).rank, 2);
}

TEST(Diagnosis, ShowsThousandsOfRanksBriefly) {
  auto run = run_of(2000);
  for (auto& rank : run.ranks) end(rank, 0, SIGTERM, true);
  end(run.ranks[1234], 0, SIGBUS);
  const auto found = diagnose(run);
  EXPECT_EQ(found.rank, 1234);
  const auto text = diagnosis_text(run, found);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60);
  EXPECT_THAT(text, HasSubstr("1234"));
  const auto json = nlohmann::json::parse(diagnosis_json(run, found));
  EXPECT_EQ(json["ranks"].size(), 2000u);
  EXPECT_EQ(json["cause"], "crashed");
}

// Not a rank, but a process above it was killed or stopped.
// The supervisor of rank 1 was killed, and the rank with it. The launcher went on.
TEST(Diagnosis, NamesARankThatWasKilledWithItsSupervisor) {
  auto run = run_of(3);
  for (auto& rank : run.ranks) rank.host = "node1";
  for (const int survivor : {0, 2}) end(run.ranks[static_cast<std::size_t>(survivor)], 70);
  record(run.ranks[1], 5, Category::backward, noon - second);
  EXPECT_THAT(diagnose(run), Says(Cause::killed,
                                  "rank 1 on node1 was killed together with its supervisor, so that there "
                                  "is no record of its end, in step 12, in backward; ranks 0, 2 ended with "
                                  "exit code 70"));
  EXPECT_EQ(diagnose(run).rank, 1);
  // mpirun may stop the others before they end by themselves, and one of them too early for its record.
  end(run.ranks[0], 0, SIGTERM, true);
  run.ranks[2].end.reset();
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted) << "nothing tells which rank was first";
  for (const auto* said :
       {"mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n",
        "srun: error: node1: task 1: Killed\n"}) {
    run.job->starter_said = said;
    EXPECT_EQ(diagnose(run).cause, Cause::killed);
    EXPECT_EQ(diagnose(run).rank, 1);
  }
  run.job->starter_said =
      "srun: error: node1: task 1: Exited with exit code 1\nsrun: error: node1: task x: Killed\n";
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted);
  run.job->starter_said.clear();
  run.ranks[0].log.losses = {"rank 2 (pid 7 on node1) was killed by SIGKILL; rank 0 was in allreduce #5"};
  EXPECT_EQ(diagnose(run).cause, Cause::killed);
  EXPECT_EQ(diagnose(run).rank, 2);
  run.job->signals = {{SIGTERM, noon}};
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted);
  run.job->signals.clear();
  in_slurm(run, {{"JobState", "CANCELLED"}});
  EXPECT_EQ(diagnose(run).cause, Cause::cancelled) << "Slurm kills the supervisors, too";
}

// The third Ctrl-C kills ranks and supervisors. The launcher has recorded all of them.
TEST(Diagnosis, KnowsFromTheLauncherWhyNobodyRecordedAnEnd) {
  auto run = run_of(2);
  run.job->exit_code = 1;
  run.job->message = "mpirun ended with code 1, and no record exists of the end of rank 0, 1";
  EXPECT_THAT(diagnose(run), Says(Cause::unknown, "no record exists of the end of rank 0, 1"));
  EXPECT_THAT(diagnose(run).verdict, Not(HasSubstr("launcher was killed")));
  run.job->signals = {{SIGTERM, noon}, {SIGTERM, noon + second}, {SIGTERM, noon + second}};
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted);
  EXPECT_THAT(diagnose(run).verdict, Not(HasSubstr("launcher was killed")));
}

// The supervisor of rank 1 was killed, and mpirun killed that of rank 0 before it had recorded the end
// of its rank.
TEST(Diagnosis, KnowsFromRunJsonThatRankZeroLostAPeer) {
  auto run = run_of(2);
  for (auto& rank : run.ranks) rank.host = "node1";
  run.facts.exit_code = 70;
  EXPECT_THAT(diagnose(run), Says(Cause::killed, "rank 1 on node1 was killed together with its supervisor"));
  EXPECT_EQ(diagnose(run).rank, 1);
}

TEST(Diagnosis, SaysThatMpirunWasKilled) {
  auto run = run_of(2);
  run.job->host = "node1";
  run.job->starter = "mpirun";
  run.job->starter_signal = SIGKILL;
  for (const bool recorded : {false, true}) {
    if (recorded)
      for (auto& rank : run.ranks) end(rank, 0, SIGKILL, true);
    const auto found = diagnose(run);
    EXPECT_THAT(found, Says(Cause::killed,
                            "the run ended because mpirun was killed by signal 9 (Killed) at 08:00:01 "
                            "UTC; it has no checkpoint."));
    EXPECT_EQ(found.rank, std::nullopt);
    EXPECT_THAT(found.next, Contains(HasSubstr("check the kernel log on node1")));
  }
  run.folder = "run/starts/0001";
  EXPECT_THAT(diagnose(run).verdict, testing::EndsWith("(Killed) at 08:00:01 UTC."));
  EXPECT_THAT(diagnose(run).next, Contains(HasSubstr("for the last one: farandole doctor run")));
  run.job->signals = {{SIGTERM, noon}};
  EXPECT_EQ(diagnose(run).cause, Cause::interrupted) << "the launcher kills it after the third signal";
}

TEST(Diagnosis, NamesWhatIsStoppedAboveTheRanks) {
  auto run = run_of(2);
  run.job->end_ns = 0;
  run.launcher_alive = true;
  run.stopped_helpers = {{"mpirun", 70}, {"the supervisor of rank 1", 72}};
  auto found = diagnose(run);
  EXPECT_THAT(found, Says(Cause::running,
                          "; mpirun (process 70) is stopped (state T); the supervisor of rank 1 "
                          "(process 72) is stopped (state T)."));
  EXPECT_THAT(found.next, Contains("continue mpirun: kill -CONT 70"));
  run.ranks[0].log.stall = "stall: rank 0 has waited 3.2 s in allreduce #3 'bucket 0'";
  EXPECT_THAT(diagnose(run),
              Says(Cause::stalled, "the supervisor of rank 1 (process 72) is stopped (state T)."));
}

// Options of `farandole train` mean nothing to a program of one's own, which may save checkpoints of its own.
TEST(Diagnosis, AdvisesAProgramInItsOwnWords) {
  auto run = run_of(2);
  run.kind = ProgramKind::program;
  run.ranks[0].log.memory_short = true;
  end(run.ranks[0], 1);
  end(run.ranks[1], 0, SIGTERM, true);
  EXPECT_THAT(diagnose(run).next, Not(Contains(HasSubstr("--batch"))));
  EXPECT_THAT(diagnose(run).next, Contains(HasSubstr("backward_passes_per_step")));
  EXPECT_THAT(diagnose(run).next,
              Contains("there is no checkpoint to continue from; farandole::Run saves one from "
                       "time to time (checkpoint_every)"));
  run.other_checkpoint = "run/model.pt";
  EXPECT_THAT(diagnose(run).next, Contains("start the program so that it continues from run/model.pt"));
  EXPECT_THAT(diagnose(run).evidence, Contains("run/model.pt looks like a checkpoint of the program's own"));
  run.checkpoint_step = 60;
  EXPECT_THAT(diagnose(run).next, Contains(HasSubstr("from step 60 if the program calls resume()")));
  run.kind = ProgramKind::train;
  EXPECT_THAT(diagnose(run).next, Contains("the same command continues from step 60 (--resume auto)"));
}

TEST(Diagnosis, NamesARankThatLeftWithoutFinalize) {
  auto run = run_of(3);
  run.job->starter = "mpirun";
  run.job->exit_code = 1;
  run.job->starter_said =
      "----\nmpirun has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly. There are three "
      "reasons this could occur:\n";
  end(run.ranks[1], 0);
  end(run.ranks[2], 0, SIGTERM, true);
  const auto found = diagnose(run);
  EXPECT_THAT(found,
              Says(Cause::failed,
                   "rank 1 on node2 ended with exit code 0 without MPI_Finalize, at 08:00:00 UTC; rank 2 "
                   "was stopped by the launcher"));
  EXPECT_EQ(found.rank, 1);
  // The others have noticed it before mpirun did.
  run.job->starter_said.clear();
  for (const int other : {0, 2}) end(run.ranks[static_cast<std::size_t>(other)], 70).time_ns = noon + second;
  record(run.ranks[1], 3, Category::backward, noon);
  EXPECT_THAT(diagnose(run), Says(Cause::failed, "without MPI_Finalize in step 12, in backward, at"));
}

// Open MPI's own reason is the verdict if no rank began.
TEST(Diagnosis, SaysWhyTheRanksWereNotStarted) {
  auto run = run_of(2);
  run.job->starter = "mpirun";
  run.job->exit_code = 1;
  run.job->message = "mpirun ended with code 1, and no record exists of the end of rank 0, 1";
  run.job->starter_said =
      "-----\nOpen RTE was unable to open the hostfile:\n    /no/hosts\nCheck to make sure.\n-----\n\x1b[2Jmore\n";
  const auto found = diagnose(run);
  EXPECT_THAT(
      found,
      Says(Cause::failed,
           "mpirun did not start the ranks: Open RTE was unable to open the hostfile: /no/hosts Check to "
           "make sure."));
  EXPECT_THAT(found.next, testing::ElementsAre("correct what mpirun names and start the run again"));
  EXPECT_THAT(found.evidence, Contains(HasSubstr("mpirun said: Open RTE was")));
  EXPECT_THAT(diagnosis_text(run, found), testing::AllOf(HasSubstr("?[2Jmore"), Not(HasSubstr("\x1b"))));
}

TEST(Diagnosis, SaysWhyTheLauncherRefused) {
  auto run = run_of(2);
  run.job->exit_code = 64;
  run.job->message = "SLURM_JOB_ID names Slurm job 4711, but srun is not in PATH";
  EXPECT_THAT(diagnose(run),
              Says(Cause::refused, "the run was refused with exit code 64: SLURM_JOB_ID names Slurm"));
}

// A refusal is one that comes before the first step.
TEST(Diagnosis, ShowsHowCallsDiffered) {
  auto run = run_of(2);
  end(run.ranks[1], 64);
  run.ranks[1].log = read_last_words(
      "Traceback (most recent call last):\n  File \"train.py\", line 38, in main\n"
      "farandole._core.Error: the ranks make different calls:\n  size       rank 0       136714 elements\n"
      "  size       rank 1       3 elements\n");
  EXPECT_THAT(diagnose(run),
              Says(Cause::refused, "refused with exit code 64: the ranks make different calls: size"));
  record(run.ranks[1], 3, Category::backward, noon);
  const auto found = diagnose(run);
  EXPECT_THAT(found,
              Says(Cause::failed,
                   "rank 1 on node2 ended with exit code 64 (the ranks make different calls: size rank 0 "
                   "136714 elements, size rank 1 3 elements) in step 12, in backward, at"));
  EXPECT_THAT(found.next, Contains(HasSubstr("correct what the message names")));
  EXPECT_THAT(diagnosis_text(run, found), HasSubstr("0     node1  with the job"));
}

TEST(Diagnosis, SendsToTheAnalyzerOnlyWhereItCanRead) {
  auto run = run_of(1);
  end(run.ranks[0], 0);
  EXPECT_THAT(diagnose(run).next, testing::ElementsAre(HasSubstr("leave out --timeline off")));
  run.kind = ProgramKind::program;
  EXPECT_THAT(diagnose(run).next,
              testing::ElementsAre(HasSubstr("--trace-torch records a PyTorch program, and --trace-mpi")));
  record(run.ranks[0], 3, Category::backward, noon);
  EXPECT_THAT(diagnose(run).next, testing::ElementsAre("farandole analyze run"));
}

}  // namespace
}  // namespace farandole
