// What a training loop does, whatever it trains. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace farandole {

// The options that `farandole train` and `farandole fit` have in common.
struct SharedLoopOptions {
  std::int64_t epochs = 1;
  std::int64_t batch = 32;  // Samples per rank and backward pass.
  int accumulate = 1;       // Backward passes per step.
  std::uint64_t seed = 1;

  std::string optimizer = "sgd";  // sgd | adam | adamw | rmsprop, and for fits adagrad | lbfgs
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  bool scale_lr = true;  // Multiplies lr by the number of ranks.
  std::int64_t warmup_steps = 0;
  std::string schedule = "constant";  // constant | cosine, and for fits step | polynomial | one_cycle
  std::int64_t lr_step_epochs = 1;    // For step: epochs between two changes, and the factor of a change.
  double lr_gamma = 0.1;
  double clip_norm = 0;               // Largest global 2-norm of the gradients; 0: no limit.
  std::string precision = "float32";  // Of the layers: float32 | tf32 | bfloat16 | float16.
  std::string on_nonfinite = "stop";  // After a gradient that is not finite: stop | skip | rollback.

  std::string device = "auto";  // cpu | cuda (a GPU for each rank) | auto (GPUs if every rank can have one)
  std::string shard = "auto";   // As DistributedOptimizerOptions::shard: auto | on | off.

  std::string checkpoint_every = "1epochs";  // For example "500steps", "2epochs", "10min", "auto" or "never".
  bool tensorboard = false;                  // Event files in RUN/tensorboard.
  std::filesystem::path prometheus{};        // Folder of the node exporter's textfiles; empty: none.
  double peak_tflops = 0;                    // Of a device, for MFU; 0: from the table of known cards.
};

struct LoopOptions : SharedLoopOptions {
  std::filesystem::path run_dir{};
  std::int64_t steps = 0;                 // Largest number of optimizer steps; 0: --epochs decides.
  std::optional<double> bucket_mb = 25;   // In MiB; no value: measured in the first steps.
  std::string compression = "none";       // see fusion/compression.h
  std::string synchronize = "gradients";  // see train/distributed_optimizer_options.h
  std::int64_t check_replicas = 0;        // Steps between two checks; 0: never.

  bool saves_each_epoch = false;  // Also after each epoch.
  double mtbf = 24 * 3600;        // Mean time between failures in seconds, for an automatic interval.
  int checkpoint_keep = 3;
  std::int64_t checkpoint_keep_every = 0;  // Steps; 0: only the newest ones and the best one.
  std::int64_t log_steps = 10;
  bool shows_progress = true;
};

}  // namespace farandole
