#include "farandole/launch/run_status.h"

#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/host.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/submission.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

using testing::HasSubstr;
using State = RunStatus::State;
namespace fs = std::filesystem;

constexpr std::int64_t start_ns = 1'700'000'000'000'000'000;  // 2023-11-14T22:13:20Z

class StatusOfRun : public testing::Test {
 protected:
  StatusOfRun() {
    fs::create_directories(run / "launch");
    fs::create_directories(run / "checkpoints");
    job.start_ns = start_ns;
    job.ranks = 2;
    facts.started = "2023-11-14T22:13:21Z";
    facts.hosts = {"node1", "node1", "node2"};
    facts.total_steps = 100;
  }
  RunStatus read() {
    write_run_facts(run / "run.json", facts);
    write_job(run / "launch/job.json", job);
    return read_run_status(run);
  }
  State after(int exit_code, std::int64_t requeued_ns = 0) {
    job.end_ns = start_ns + 10;
    job.exit_code = exit_code;
    job.requeued_ns = requeued_ns;
    return read().state;
  }

  TemporaryFolder folder;
  fs::path run = folder.path();
  JobRecord job;
  RunFacts facts;
};

TEST_F(StatusOfRun, IsWhatItsLauncherHasSeen) {
  EXPECT_EQ(after(0), State::finished);
  EXPECT_EQ(after(75), State::stopped);
  EXPECT_EQ(after(75, 7), State::waiting);
  job.message = "rank 1 (host node2) failed first: exit code 1";
  EXPECT_EQ(after(1), State::failed);
  EXPECT_EQ(read().detail, job.message);
  EXPECT_THAT(status_text({read()}), HasSubstr("failed with exit code 1"));
}

// A shell script in PATH answers for Slurm.
TEST(StatusOfSubmission, IsWhatSlurmSaysUntilItsLauncherCame) {
  const TemporaryFolder programs, run;
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (programs.path().string() + ":" + path).c_str(), 1);
  const auto slurm_says = [&](const std::string& state, const fs::path& script) {
    std::ofstream(programs / "scontrol") << "#!/bin/sh\n[ \"$3\" = 7 ] && echo '" << state
                                         << " Reason=Resources\n   Command=" << script.string() << "'\n";
    fs::permissions(programs / "scontrol", fs::perms::owner_all);
    return read_run_status(run.path());
  };
  EXPECT_THROW(read_run_status(run.path()), UserError);
  record_submission(run.path(), "7");
  EXPECT_EQ(submitted_job(run.path()), "7");
  const auto waiting = slurm_says("JobState=PENDING", run / "job.sbatch");
  EXPECT_EQ(waiting.state, State::waiting);
  EXPECT_THAT(status_text({waiting}), HasSubstr(": waiting to start\n  reason      Slurm says Resources\n"));
  EXPECT_EQ(slurm_says("JobState=RUNNING", run / "job.sbatch").state, State::starting);
  EXPECT_EQ(read_run_status(run.path(), &waiting).state, State::waiting) << "Slurm is not asked";
  EXPECT_EQ(slurm_says("JobState=FAILED", run / "job.sbatch").state, State::failed);
  const auto unknown = slurm_says("JobState=PENDING", "/another/job.sbatch");
  EXPECT_EQ(unknown.state, State::starting);
  EXPECT_THAT(unknown.detail, HasSubstr("Slurm cannot be asked"));

  JobRecord job{.ranks = 2, .start_ns = start_ns, .end_ns = start_ns + 10};
  fs::create_directories(run / "launch");
  write_job(run / "launch/job.json", job);
  EXPECT_EQ(read_run_status(run.path(), &waiting).state, State::finished) << "Slurm is asked again";
  const auto again = slurm_says("JobState=PENDING", run / "job.sbatch");
  EXPECT_THAT(status_text({again}), HasSubstr(": waiting to start again\n"));
  EXPECT_EQ(slurm_says("JobState=PENDING", "/another/job.sbatch").state, State::finished);
  job.slurm["JOB_ID"] = "7";
  write_job(run / "launch/job.json", job);
  EXPECT_EQ(slurm_says("JobState=RUNNING", run / "job.sbatch").state, State::finished);

  // Its ranks have saved and ended; its launcher is about to requeue it.
  job.slurm["JOB_NAME"] = "train";
  job.exit_code = 75;
  job.end_ns = real_time_ns();
  write_job(run / "launch/job.json", job);
  const std::string still_runs = "JobId=7 JobName=train\n   JobState=RUNNING";
  EXPECT_EQ(slurm_says(still_runs, run / "job.sbatch").state, State::waiting);
  job.end_ns = start_ns + 10;
  write_job(run / "launch/job.json", job);
  EXPECT_EQ(slurm_says(still_runs, run / "job.sbatch").state, State::stopped);
  ::setenv("PATH", path.c_str(), 1);
}

// Whoever can write into a run directory must not control the terminal of whoever looks at it.
TEST_F(StatusOfRun, HasNoControlCharacters) {
  job.message = "a\x1b[2J\n  state       finished";
  facts.program = "b\x1b]0;title\x07";
  facts.hosts = {
      "c\x9b"
      "1m\r"};
  after(1);
  const auto one = status_text({read()});
  EXPECT_THAT(one, HasSubstr("a?[2J?  state       finished"));
  auto named = read();
  named.folder = "d\x1b[1m\n";
  for (const auto& text : {one, status_text({named}), status_text({named, named})})
    for (const unsigned char c : text) EXPECT_TRUE(c == '\n' || c >= 0x20) << text;
  EXPECT_THAT(status_text({named}), HasSubstr("d?[1m?: failed"));
  EXPECT_THAT(one, HasSubstr("checkpoint  none\n"));
}

TEST_F(StatusOfRun, IsLostWithoutAnEndAndASignOfLife) {
  EXPECT_EQ(read().state, State::lost);
  const RunLease lease(run, [](const std::string&) {});
  EXPECT_EQ(read().state, State::running);
  job.start_ns = start_ns + 60'000'000'000;  // A new start, whose ranks have not written run.json yet.
  EXPECT_EQ(read().state, State::starting);
}

// Rank 0 had to leave its job at once, because it lost a peer. Its launcher was killed before it could
// record the end.
TEST_F(StatusOfRun, HasFailedIfRankZeroRecordedItsEndButKeptItsLease) {
  const RunLease lease(run, [](const std::string&) {});
  facts.ended = "2023-11-14T22:14:00Z";
  facts.exit_code = 70;
  const auto status = read();
  EXPECT_EQ(status.state, State::failed);
  EXPECT_EQ(status.exit_code, 70);
  job.start_ns =
      start_ns + 60'000'000'000;  // The launcher's next start; its ranks have not written run.json yet.
  EXPECT_EQ(read().state, State::starting);
}

TEST_F(StatusOfRun, StartsUntilTheRanksWrite) {
  job.start_ns = real_time_ns();
  EXPECT_EQ(read().state, State::starting);
  job.host = host_name();
  job.pid = ::getpid();
  EXPECT_EQ(read().state, State::starting);
  job.pid = ::fork();
  if (job.pid == 0) ::_exit(0);
  ::waitpid(static_cast<pid_t>(job.pid), nullptr, 0);
  EXPECT_EQ(read().state, State::lost) << "the launcher was killed";
}

TEST_F(StatusOfRun, CountsStepsAndTimes) {
  std::ofstream(run / "metrics.jsonl")
      << R"({"step":10,"epoch":0,"loss":2.5,"lr":1,"samples_per_s":64,"step_ms":1000})"
      << "\n"
      << R"({"step":20,"epoch":1,"loss":1.5,"lr":1,"samples_per_s":32,"step_ms":2000})"
      << "\n"
      << R"({"step":20,"epoch":1,"eval_loss":1.25,"eval_accuracy":0.5})"
      << "\n"
      << R"({"step":30,"lo)";
  std::ofstream(run / "checkpoints/step-00000010.h5") << "x";
  std::ofstream(run / "checkpoints/.step-00000099.h5.new") << "x";
  const RunLease lease(run, [](const std::string&) {});
  facts.model_flops = 8e12;
  facts.peak_tflops = 40;
  job.slurm["JOB_END_TIME"] = std::to_string(real_time_ns() / 1'000'000'000 + 3600);
  const auto status = read();
  EXPECT_EQ(status.step, 20);
  EXPECT_EQ(status.checkpoint_step, 10);
  EXPECT_DOUBLE_EQ(*status.seconds_left, 80 * 1.5);
  EXPECT_FALSE(status.wall_seconds_left) << "no Slurm job";
  EXPECT_THAT(status.hosts, testing::ElementsAre("node1", "node2"));
  const auto text = status_text({status});
  for (const char* part : {"running, step 20 of 100 (20 %), epoch 2", "32 samples/s, 2e+03 ms per step",
                           "model       4 TFLOP/s, MFU 10.0 %", "1.5000, held-out 1.2500, accuracy 50.00 %",
                           "time left   2:00", "step 10, 0:0"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto json = nlohmann::json::parse(status_json({status, status}));
  EXPECT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][0]["state"], "running");
  EXPECT_EQ(json["runs"][0]["eval_accuracy"], 0.5);
  EXPECT_EQ(json["runs"][0]["tflops"], 4);
  EXPECT_THAT(status_text({status, status}), HasSubstr("20/100"));
}

TEST_F(StatusOfRun, SaysThatTheLossIsNotFinite) {
  std::ofstream(run / "metrics.jsonl") << "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":null}\n";
  const auto status = read();
  EXPECT_THAT(status_text({status}), HasSubstr("loss        not finite (NaN or infinite)\n"));
  EXPECT_THAT(status_text({status, status}), HasSubstr("nan"));
  EXPECT_TRUE(nlohmann::json::parse(status_json({status}))["runs"][0]["loss"].is_null());
}

TEST_F(StatusOfRun, NeedsARunDirectory) {
  EXPECT_THROW(read_run_status(run / "absent"), UserError);
  EXPECT_THROW(read_run_status(run), UserError);
  std::ofstream(run / "launch/job.json") << "{";
  std::ofstream(run / "run.json") << "{\"restarts\": ";
  EXPECT_THROW(read_run_status(run), UserError);
}

// A program that links the library writes neither run.json nor metrics. Its flight recorder tells the rest.
class StatusOfAProgram : public StatusOfRun {
 protected:
  RunStatus read() {
    write_job(run / "launch/job.json", job);
    return read_run_status(run);
  }
  // Steps of 2 ms each; is killed in step `last`, or ends after it.
  void record(std::int64_t last, bool ends = false, bool counted = false) {
    const pid_t rank = ::fork();
    if (rank == 0) {
      {
        Timeline timeline(run_timeline(run));
        timeline.name_thread("training");
        if (counted) timeline.set_metadata(recorder::steps_fact, recorder::counted_steps);
        auto at = now_ns();
        for (std::int64_t step = 0; step <= last; ++step, at += 2'000'000) {
          timeline.set_step(step);
          timeline.span(Category::step, "step", at, at + 1'900'000);
        }
        if (!ends) ::raise(SIGKILL);
      }
      ::_exit(0);
    }
    ::waitpid(rank, nullptr, 0);
  }
};

TEST_F(StatusOfAProgram, HasTheStepAndRateOfItsRecorder) {
  job.start_ns = real_time_ns() - 1'000'000'000;
  job.program = {"./cnn"};
  const RunLease lease(run, [](const std::string&) {});
  EXPECT_EQ(read().state, State::starting);
  record(40, false, true);
  const auto status = read();
  EXPECT_EQ(status.state, State::running);
  EXPECT_EQ(status.step, 40);
  EXPECT_DOUBLE_EQ(status.step_ms.value_or(0), 2);
  const auto text = status_text({status});
  for (const char* part :
       {"running, step 40 of this start", "500 steps/s, 2 ms per step; for samples/s, give farandole::Run",
        "checkpoint  none\n", "goodput     ", " = 100 − "})
    EXPECT_THAT(text, HasSubstr(part));
  std::ofstream(run / "model.pt") << "x";
  EXPECT_THAT(status_text({read()}), HasSubstr("none of Farandole; model.pt looks like one, 0:0"));
  std::ofstream(run / "run.json") << R"({"global_batch": 64, "program": "./cnn"})";
  EXPECT_THAT(status_text({read()}), HasSubstr("32000 samples/s, 2 ms per step\n"));
  EXPECT_THAT(status_text({read()}), HasSubstr("  program     ./cnn\n"));
  const auto json = nlohmann::json::parse(status_json({read()}))["runs"][0];
  EXPECT_EQ(json["step"], 40);
  EXPECT_EQ(json["other_checkpoint"], "model.pt");
  EXPECT_EQ(json["program"], "./cnn");
  EXPECT_GT(json["goodput"]["rank_seconds"]["start_up"].get<double>(), 0);
}

TEST_F(StatusOfAProgram, HasAnEnd) {
  job.start_ns = real_time_ns() - 1'000'000'000;
  record(40);
  job.end_ns = real_time_ns();
  job.exit_code = 1;
  EXPECT_EQ(read().state, State::failed);
  fs::remove_all(run / "launch");
  EXPECT_EQ(read_run_status(run).state, State::killed);
  EXPECT_EQ(read_run_status(run).detail, "rank 0 ended without closing the recorder");
  fs::remove_all(run / "recorder");
  record(40, true);
  const auto status = read_run_status(run);
  EXPECT_EQ(status.state, State::ended);
  EXPECT_THAT(status.detail, HasSubstr("farandole run would record the exit code"));
  EXPECT_EQ(status.step, 40);
}

// Another launcher has started these ranks, and no rank holds the lease.
TEST_F(StatusOfAProgram, IsWhatItsRecordersTell) {
  fs::remove_all(run / "launch");
  auto options = run_timeline(run, 0, 2);
  auto timeline = std::make_unique<Timeline>(options);
  EXPECT_EQ(read_run_status(run).state, State::running);
  EXPECT_EQ(read_run_status(run).ranks, 2);
  timeline.reset();
  EXPECT_EQ(read_run_status(run).state, State::ended);
  EXPECT_THAT(status_text({read_run_status(run)}), HasSubstr(": ended"));
  fs::rename(recorder_file(run, 0), recorder_file(run, 1));
  EXPECT_EQ(read_run_status(run).state, State::ended) << "rank 0 has no recorder";
  fs::remove(recorder_file(run, 1));
  options.host = "elsewhere";
  timeline = std::make_unique<Timeline>(options);
  EXPECT_EQ(read_run_status(run).state, State::running) << "it has recorded a moment ago";
}

// The run.json of the start before has an end. The new start records before it writes its own.
TEST_F(StatusOfRun, IsNotThatOfAnEarlierStart) {
  const RunLease lease(run, [](const std::string&) {});
  job.start_ns = real_time_ns() - 1'000'000'000;
  facts.ended = "2023-11-14T22:14:00Z";
  facts.exit_code = 75;
  const Timeline timeline(run_timeline(run));
  EXPECT_EQ(read().state, State::running);
}

TEST_F(StatusOfAProgram, SaysWhyTheStepIsUnknown) {
  job.start_ns = real_time_ns() - 1'000'000'000;
  const RunLease lease(run, [](const std::string&) {});
  { const Timeline timeline(run_timeline(run)); }
  EXPECT_THAT(status_text({read()}), HasSubstr("session.set_step(n) or farandole::Run numbers them"));
  fs::remove(recorder_file(run, 0));
  EXPECT_EQ(read().state, State::starting);
  fs::create_symlink("/another/node", node_link(recorder_file(run, 0)));
  EXPECT_THAT(status_text({read()}), HasSubstr("FARANDOLE_RECORDER_DIR=run records in the run directory"));
}

}  // namespace
}  // namespace farandole
