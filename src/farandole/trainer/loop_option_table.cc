#include "farandole/trainer/loop_option_table.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

#include "farandole/base/error.h"
#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/run/checkpoint_schedule.h"

namespace farandole {

void add_loop_options(OptionGroups& groups, OptionGroups::Group& rare, SharedLoopOptions& o) {
  // clang-format off
  groups.training.add_options()
      ("epochs", with_default(o.epochs), "passes over the data")
      ("batch-size", with_default(o.batch), "samples per rank and backward pass")
      ("accumulate", with_default(o.accumulate), "backward passes per step")
      ("lr", with_default(o.lr), "learning rate of one rank")
      ("scale-lr", with_default(o.scale_lr), "multiply the learning rate by the number of ranks")
      ("warmup-steps", with_default(o.warmup_steps), "steps in which the learning rate rises from --lr to the scaled rate")
      ("momentum", with_default(o.momentum), "momentum (sgd, rmsprop)")
      ("weight-decay", with_default(o.weight_decay), "L2 penalty of the parameters; with adamw, their decay")
      ("clip-norm", with_default(o.clip_norm), "largest global norm of the gradients; 0: no limit")
      ("precision", with_default(o.precision), "numbers with which layers compute: float32, tf32, bfloat16 or float16")
      ("on-nonfinite", with_default(o.on_nonfinite), "after a NaN or an infinity in a gradient of any rank: stop, skip (leave the step out) or rollback (to the newest checkpoint)")
      ("seed", with_default(o.seed), "seed of shuffling, dropout and all else that is random");
  groups.devices.add_options()
      ("device", with_default(o.device), "cpu, cuda (one GPU for each rank) or auto (GPUs if every rank can have one)")
      ("shard", with_default(o.shard), "keep parameters and optimizer state once a node, and divide the update by its ranks: auto (if it is possible), on or off");
  rare.add_options()
      ("tensorboard", boost::program_options::bool_switch(&o.tensorboard), "also write the metrics to RUN/tensorboard, for TensorBoard")
      ("prometheus", taken_by([&o](const std::string& folder) { o.prometheus = folder; }), "folder in which each rank also writes its metrics for the textfile collector of Prometheus's node exporter")
      ("peak-tflops", with_default(o.peak_tflops), "most that one device (on CPUs: one rank) can do in the precision of the training, in 10^12 floating-point operations per second, for MFU; 0: from a table of known GPUs");
  // clang-format on
}

void check_loop_options(const SharedLoopOptions& o) {
  check_range("epochs", o.epochs, 1);
  check_range("batch-size", o.batch, 1);
  check_range("accumulate", o.accumulate, 1, 10'000);
  check_range("warmup-steps", o.warmup_steps, 0);
  check_not_negative("lr", o.lr);
  check_not_negative("momentum", o.momentum);
  check_not_negative("weight-decay", o.weight_decay);
  check_not_negative("clip-norm", o.clip_norm);
  check_not_negative("peak-tflops", o.peak_tflops);
  check_one_of("precision", o.precision, {"float32", "tf32", "bfloat16", "float16"});
  check_one_of("on-nonfinite", o.on_nonfinite, {"stop", "skip", "rollback"});
  check_one_of("device", o.device, {"cpu", "cuda", "auto"});
  parse_shard(o.shard);
  CheckpointInterval::parse(o.checkpoint_every);
  if (o.momentum > 0 && o.optimizer != "sgd" && o.optimizer != "rmsprop")
    throw UserError("--momentum cannot be used with --optimizer " + o.optimizer + "; use sgd or rmsprop");
}

void check_range(const char* option, std::int64_t actual, std::int64_t minimum, std::int64_t maximum) {
  if (actual < minimum || actual > maximum)
    throw UserError(
        fmt::format("--{} is {}; it must be between {} and {}", option, actual, minimum, maximum));
}

void check_not_negative(const char* option, double actual) {
  if (!(actual >= 0 && std::isfinite(actual)))
    throw UserError(fmt::format("--{} is {}; it must be finite and not negative", option, actual));
}

void check_one_of(const char* option, const std::string& actual, const std::vector<std::string>& known) {
  if (std::ranges::count(known, actual) > 0) return;
  const auto nearest = nearest_name(actual, known);
  throw UserError(fmt::format("--{} cannot be '{}'; it is one of {}{}", option, actual,
                              fmt::join(known, ", "),
                              nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

}  // namespace farandole
