// What surrounds the steps of a training, whoever has the loop: its position, metrics, checkpoints and best
// score. A Trainer has one, and so has a Run.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <torch/types.h>
#include <utility>
#include <vector>

#include "farandole/base/run/model_rate.h"
#include "farandole/checkpoint/snapshot.h"
#include "farandole/job/run/metrics_log.h"
#include "farandole/job/run/resource_usage.h"
#include "farandole/job/run/run_directory.h"
#include "farandole/train/run/checkpoint_schedule.h"
#include "farandole/train/run/flop_counter.h"
#include "farandole/train/run/prometheus_textfile.h"
#include "farandole/train/run/run_checkpoints.h"
#include "farandole/train/run/tensorboard_writer.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/session.h"

namespace farandole {

struct RunStateOptions {
  std::filesystem::path run_dir;
  CheckpointInterval checkpoint_every;
  double mtbf = 24 * 3600;  // Mean time between failures in seconds, for an automatic interval.
  int keep = 3;
  std::int64_t keep_every = 0;
  std::int64_t log_steps = 10;
  std::string config;                  // JSON, for checkpoints and run.json.
  std::string loss_remedy;             // What to do about a loss that is not finite.
  bool tensorboard = false;            // Event files in RUN/tensorboard.
  std::filesystem::path prometheus{};  // Folder of the node exporter's textfiles; empty: none.
  double model_flops = 0;              // Of a step of all ranks, if the program knows them; 0: counted.
  double peak_tflops = 0;              // Of a device; 0: from the table of known cards.
};

class RunState {
 public:
  // The arguments must outlive this object. `settle` is called on all ranks before a snapshot: it brings
  // parameters and optimizers to the state of the last step, the same on all ranks. `save_samples` adds to
  // the snapshot what the position within the epoch needs, and returns the samples that were seen.
  struct Hooks {
    std::function<void()> settle;
    std::function<std::int64_t(SnapshotBuilder&)> save_samples;
    std::function<bool()> stop_requested;  // on this rank; possibly called on another thread
  };
  RunState(Session& session, RunStateOptions options, const TrackedState& tracked, Hooks hooks);

  Position position;  // The samples are those at the last save.

  // Restores the tracked state. Rank 0 passes the snapshot, the others pass nullptr.
  // Throws: UserError on all ranks if the model differs.
  // Collective: every rank of the job must call this in the same order.
  void resume(const Position& from, Snapshot* snapshot);
  // Opens metrics and checkpoints, before the first step of a start.
  // Collective: every rank of the job must call this in the same order.
  void begin();
  // What run.json says of this run; `program`, `global_batch` and `total_steps` are missing.
  RunFacts facts() const;
  // Writes run.json on rank 0, and records what the start before this one has lost. `directory` must
  // outlive this object.
  void started(RunDirectory& directory, RunFacts facts);

  // Begins to count the model's operations on rank 0, or begins again, until they are known. Call it before a
  // step that has as many samples as most have. It ends with operators_done() or count_step(). Then run.json
  // has them. The memory of the GPU by owner gets there with the second line of metrics, and at the end.
  void watch_operators();
  void operators_done();
  // Of the last two lines of metrics; on rank 0 only, if it is known.
  std::optional<ModelRate> rate() const { return rate_of(step_s_); }
  // "12 TFLOP/s, MFU 3 % (2 TFLOP a step, counted …)"; empty on other ranks than 0, and if nothing is known.
  std::string describe_rate() const;
  // Adds this rank's values of a step to the next line of metrics. `trained` is false if it changed nothing.
  void count_step(const std::vector<std::pair<std::string, torch::Tensor>>& values, bool trained);
  // If a line is due, all ranks get the means over ranks and steps, and rank 0 writes it.
  // Throws: Error on all ranks if the value "loss" is not finite.
  // Collective: every rank of the job must call this in the same order.
  void report(bool last, double lr, double samples_per_step);
  std::optional<double> last_loss() const;  // Of the last line; none before it.
  double samples_per_s() const { return samples_per_s_; }
  // Time that is not the steps', such as that of an evaluation.
  void leave_out(std::int64_t ns) { reported_ns_ += ns; }
  void log_resources(std::int64_t epoch);                                                // Collective.
  std::string resources() { return resource_table(meter_.gather(), session_.hosts()); }  // Collective.
  MetricsLog* metrics() { return log_ ? &*log_ : nullptr; }  // Null but on rank 0.

  // The parameters of this step have this score; lower is better. Returns whether it is the best so far; only
  // rank 0 knows.
  bool scored(double score);

  // Batch normalization has running statistics of its own on each rank. Those of rank 0 are evaluated, saved
  // and used from then on, so that a resumed run gives the same results. Collective.
  void share_buffers();
  bool has_buffers() const;
  // As RunCheckpoints::due(). Collective.
  bool due(bool may_be_postponed) { return checkpoints_->due(position.step, may_be_postponed); }
  void save();           // Waits until the last checkpoint has been written. Collective.
  void take_snapshot();  // The last checkpoint has been written. Collective.
  void hold() { checkpoints_->hold(); }
  void await_writer() { checkpoints_->await_writer(); }
  // Saves what is not saved, and waits until it is on disk.
  // Throws: Error on all ranks if it could not be written.
  // Collective: every rank of the job must call this in the same order.
  void close();

  bool any_rank_asks_to_stop();  // Collective.
  // Ranks where it is true. Collective.
  std::vector<int> ranks_where(bool here);

 private:
  void write_line(const std::vector<double>& means, double lr, double samples_per_step);
  void open_metric_files();
  void update_prometheus(double step_s);
  std::optional<ModelRate> rate_of(double step_s) const;
  std::optional<ModelRate> whole_rate() const;
  void tell_memory(RunFacts& facts) const;
  bool leads() const { return session_.rank() == 0; }

  Session& session_;
  const RunStateOptions options_;
  const TrackedState& tracked_;
  const Hooks hooks_;
  ResourceMeter meter_;
  std::optional<RunCheckpoints> checkpoints_;
  bool resumed_ = false, prepared_ = false;
  std::int64_t saved_epoch_ = -1;
  // Since the last line of metrics.
  std::vector<std::pair<std::string, torch::Tensor>> sums_;
  std::int64_t trained_steps_ = 0, steps_ = 0;
  std::int64_t reported_ns_ = 0;  // Time of the last line of metrics.
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();
  double samples_per_s_ = 0;  // Between the last two lines of metrics; 0: unknown.
  std::unique_ptr<PrometheusTextfile> prometheus_;

  // On rank 0 only.
  RunDirectory* directory_ = nullptr;
  std::unique_ptr<FlopCounter> operators_;
  bool watched_ = false;
  double step_s_ = 0;  // Between the last two lines of metrics; 0: unknown.
  // Of all lines of metrics but the first, whose step is slower than others.
  double lines_s_ = 0;
  std::int64_t lines_steps_ = 0;
  double best_score_ = score_unknown;
  std::int64_t best_step_ = 0;
  double score_ = score_unknown;  // at `scored_step_`
  std::int64_t scored_step_ = -1;
  std::optional<MetricsLog> log_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
};

// Returns where the run continues, on all ranks; std::nullopt if it starts anew. Only rank 0
// has the snapshot.
// Collective: every rank of the job must call this in the same order.
std::optional<Position> share_position(Session& session, const std::optional<Snapshot>& start);

}  // namespace farandole
