// Options of `farandole train` with their defaults, and their names on the command line and
// in profiles. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/options.h"
#include "farandole/train/learning_rate.h"
#include "farandole/trainer/checkpoint_schedule.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

struct TrainOptions {
  ModelOptions model;
  DataOptions data;
  std::string data_scratch;  // auto | a folder; empty: the data is not copied.
  std::filesystem::path run_dir;

  std::int64_t epochs = 1;
  std::int64_t steps = 0;   // Largest number of optimizer steps; 0: --epochs decides.
  std::int64_t batch = 32;  // Samples per rank and backward pass.
  int accumulate = 1;       // Backward passes per step.
  std::uint64_t seed = 1;

  std::string optimizer = "sgd";  // sgd | adam | adamw | rmsprop
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  bool scale_lr = true;  // Multiplies lr by the number of ranks.
  std::int64_t warmup_steps = 0;
  std::string schedule = "constant";      // constant | cosine
  double clip_norm = 0;                   // 0: off
  std::string device = "cpu";             // cpu | cuda | auto
  int ranks_per_gpu = 1;                  // that share a GPU
  std::string precision = "float32";      // see train/precision.h
  std::optional<double> bucket_mb = 25;   // In MiB; no value: measured in the first steps.
  std::string compression = "none";       // see fusion/compression.h
  std::optional<std::string> transport;   // see Session::use_transport()
  std::string synchronize = "gradients";  // see distributed_optimizer_options.h
  std::int64_t check_replicas = 0;        // Steps between two checks; 0: never.
  std::string on_nonfinite = "stop";      // stop | skip | rollback

  CheckpointInterval checkpoint_every{CheckpointInterval::Kind::epochs, 1};
  double mtbf = 24 * 3600;  // Mean time between failures in seconds, for an automatic interval.
  int checkpoint_keep = 3;
  std::int64_t checkpoint_keep_every = 0;  // Steps; 0: only the newest ones and the best one.
  std::optional<double> stop_before;       // Seconds before the job's wall time ends.
  std::string resume = "auto";             // auto | none | a checkpoint's path
  std::string resume_optimizer = "same";   // same | fresh

  std::string timeline = "all";
  std::optional<std::string> gpu_activity;  // Values as for timeline; no value: all if there is a GPU.
  std::size_t recorder_mb = 64;
  std::optional<std::string> recorder_dir;  // auto | run | a folder; no value: FARANDOLE_RECORDER_DIR.
  std::size_t merge_limit = 64;             // Ranks in timeline.json.gz; 0: all.
  std::int64_t log_steps = 10;
  // Units: seconds in one collective before it is reported, and before the job ends. No
  // value: the environment decides.
  std::optional<double> stall_seconds, stall_abort;
  std::int64_t sample = 0;  // Bytes of text to generate at the end; gpt only.

  // Returns the options that decide what is trained and how, as JSON with sorted keys. Checkpoints and
  // run.json store this text.
  std::string to_json() const;
  // Throws: UserError if an option has a wrong value; the message names the option.
  void check() const;
};

// Describes each option of `now` that differs from `saved`, as in "--lr 0.1 instead of 0.01"; both are
// results of to_json(). Options that only one of them has, of which one is null, or that may differ without
// changing how a step is trained are left out.
std::vector<std::string> changed_options(const std::string& saved, const std::string& now);

// Binds every option to `options`, which must outlive the parser.
OptionParser train_option_parser(TrainOptions& options, const std::filesystem::path& profiles);

}  // namespace farandole
