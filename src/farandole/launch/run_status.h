// What a run is doing, from its run directory alone, also while the run is on other hosts (farandole status).
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/run/goodput.h"
#include "farandole/base/run/model_rate.h"
#include "farandole/base/run/remedies.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {

struct RunStatus {
  enum class State {
    starting,  // The launcher has started; the ranks have not written anything.
    running,
    waiting,  // The Slurm job waits to start or to start again.
    stopped,  // Has saved a checkpoint and ended; the same command continues.
    finished,
    failed,
    ended,   // Its ranks have closed their recorders; nobody has recorded more.
    killed,  // Ranks of this host have ended without closing them; nobody has recorded more.
    lost,    // Nobody has recorded its end, and it shows no sign of life.
  };
  std::string folder;
  State state = State::lost;
  std::string detail;   // Why, or what to do; empty if the state says it all.
  std::string program;  // Its command line, as run.json or the launcher has it.
  std::optional<std::int64_t> exit_code, step, total_steps, epoch, restarts, lost_steps, ranks;
  // A loss that is not finite is NaN.
  std::optional<double> loss, eval_loss, eval_accuracy, samples_per_s, step_ms;
  std::optional<ModelRate> rate;            // With the time of a step.
  std::optional<double> seconds_left;       // Until the last step.
  std::optional<double> wall_seconds_left;  // Until the Slurm job reaches its time limit.
  std::optional<std::int64_t> checkpoint_step;
  std::optional<double> checkpoint_age_s;  // By the clock of this host.
  std::string other_checkpoint;            // The newest file that looks like one of the program's own.
  bool counts_own_steps = false;           // The program does not number its steps; each start begins with 0.
  std::string no_step, no_samples;     // Why the step or the samples per second of a running run are unknown.
  Goodput goodput;                     // Over all starts; it has none while the first one begins.
  std::vector<std::string> hosts;      // Without repetition.
  std::string job;                     // Slurm job; empty outside Slurm.
  std::string job_state;               // What Slurm says about it, if Slurm can be asked here.
  std::optional<JobState> slurm_said;  // The whole answer, if it was asked.
  std::optional<bool> forgotten;       // The same: whether Slurm has no such job.
  std::string asked_about;             // What the launcher had recorded at that time.

  bool knows_goodput() const { return goodput.starts > 0 || !goodput.unknown.empty(); }
};

// Returns false if nothing more will happen to the run by itself.
bool is_under_way(RunStatus::State state);

// Looks for at most some seconds whether a run on another host is alive. Takes Slurm's answer from `before`,
// an earlier status of this run, unless the launcher has recorded something since.
// Throws: UserError if `run` is not a run directory.
RunStatus read_run_status(const std::filesystem::path& run, const RunStatus* before = nullptr);

// A paragraph for one run, and a table for several.
std::string status_text(const std::vector<RunStatus>& runs);
std::string status_json(const std::vector<RunStatus>& runs);

}  // namespace farandole
