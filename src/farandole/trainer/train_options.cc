#include "farandole/trainer/train_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/split.hpp>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/fusion/compression.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/launch/slurm/batch_script.h"
#include "farandole/timeline/timeline.h"
#include "farandole/train/distributed_optimizer_options.h"

namespace farandole {
namespace {

namespace po = boost::program_options;

template <class T>
auto value(T& variable) {
  return po::value(&variable)->default_value(variable);
}

// Without this overload, --help prints all digits of a double.
auto value(double& variable) {
  return po::value(&variable)->default_value(variable, fmt::format("{:g}", variable));
}

auto seconds(std::optional<double>& variable, const char* option) {
  return po::value<std::string>()->notifier([&variable, option](const std::string& text) {
    variable = WatchdogOptions::parse_seconds(option, text);
  });
}

// As farandole fit has them: "[a,b]" is one vector, as all features are here, also without brackets.
auto names(std::vector<std::string>& variable) {
  return po::value<std::string>()
      ->default_value(fmt::format("{}", fmt::join(variable, ",")))
      ->notifier([&](const std::string& text) {
        const bool joined = text.starts_with('[') && text.ends_with(']');
        boost::split(variable, joined ? text.substr(1, text.size() - 2) : text, boost::is_any_of(","));
      });
}

double required_duration(const char* option, const std::string& text) {
  const auto seconds = parse_duration(text);
  if (!seconds)
    throw UserError(fmt::format("{} cannot be '{}'; give a duration such as 90s, 2min or 1h", option, text));
  return *seconds;
}

auto bucket_size(std::optional<double>& variable) {
  return po::value<std::string>()
      ->default_value(fmt::format("{:g}", *variable))
      ->notifier([&](const std::string& text) {
        if (text == "auto") return variable.reset();
        variable = parse_number<double>(text);
        if (!variable || !(*variable > 0 && *variable <= 1e6))
          throw UserError(fmt::format(
              "--bucket-mb cannot be '{}'; give a number of MiB above 0 and up to 1000000, or auto", text));
      });
}

// The limit keeps products of these numbers within 64 bits.
void in_range(std::int64_t minimum, std::int64_t actual, const char* option,
              std::int64_t maximum = 1'000'000'000) {
  if (actual < minimum || actual > maximum)
    throw UserError(
        fmt::format("--{} is {}; it must be between {} and {}", option, actual, minimum, maximum));
}

void not_negative(double actual, const char* option) {
  if (!(actual >= 0 && std::isfinite(actual)))
    throw UserError(fmt::format("--{} is {}; it must be finite and not negative", option, actual));
}

void one_of(const std::string& actual, const std::vector<std::string>& known, const char* option) {
  if (std::find(known.begin(), known.end(), actual) != known.end()) return;
  const auto nearest = nearest_name(actual, known);
  throw UserError(fmt::format("--{} cannot be '{}'; it is one of {}{}", option, actual,
                              fmt::join(known, ", "),
                              nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

}  // namespace

OptionParser train_option_parser(TrainOptions& o, const std::filesystem::path& profiles) {
  OptionParser parser;
  parser.usage =
      "Usage: farandole train --data PATH --run-dir RUN [--profile NAME] [--set name=value]...\n\n"
      "Trains a model data-parallel on several ranks.\n\n"
      "Examples:\n"
      "  $ farandole run -n 4 -- farandole train --profile mnist --data DIR --run-dir RUN\n";
  parser.profiles = profiles;
  for (const auto& option : sbatch_options) parser.foreign->emplace_back(option.name);
  parser.replaced = {{"checkpoint-steps", "checkpoint-every, for example 500steps"},
                     {"checkpoint-epochs", "checkpoint-every, for example 2epochs or never"},
                     {"batch", "batch-size"},
                     {"held-out", "validation"},
                     {"labels", "label"}};
  const auto text = [](auto& variable) {
    return po::value<std::string>()->notifier([&variable](const std::string& given) { variable = given; });
  };
  po::options_description what("Model and data"), how("Training"), where("Ranks and devices");
  po::options_description keep("Output and checkpoints");
  // clang-format off
  what.add_options()
      ("model", value(o.model.name), "mnist, mlp or gpt")
      ("data", po::value(&o.data.path), "folder of IDX files, table (HDF5, CSV, NumPy or IDX; see --features in --help all), text file, folder of text files, or synthetic")
      ("layers", value(o.model.layers), "blocks (gpt) or linear layers (mlp)")
      ("width", value(o.model.width), "embedding size (gpt) or hidden units (mlp)")
      ("heads", value(o.model.heads), "attention heads (gpt)")
      ("context", value(o.model.context), "bytes per sample (gpt)")
      ("dropout", value(o.model.dropout), "dropout probability (gpt)")
      ("validation", value(o.data.held_out), "fraction of the data that is used for validation only, if the data has no test set");
  how.add_options()
      ("epochs", value(o.epochs), "passes over the data")
      ("steps", value(o.steps), "stop after this number of optimizer steps; 0: --epochs decides")
      ("batch-size", value(o.batch), "samples per rank and backward pass")
      ("accumulate", value(o.accumulate), "backward passes per step")
      ("optimizer", value(o.optimizer), "sgd, adam, adamw or rmsprop")
      ("lr", value(o.lr), "learning rate of one rank")
      ("scale-lr", value(o.scale_lr), "multiply the learning rate by the number of ranks")
      ("warmup-steps", value(o.warmup_steps), "steps in which the learning rate rises from --lr to the scaled rate")
      ("schedule", value(o.schedule), "after the warm-up: constant, or cosine (to 0 at the last step)")
      ("momentum", value(o.momentum), "momentum (sgd, rmsprop)")
      ("weight-decay", value(o.weight_decay), "weight decay")
      ("clip-norm", value(o.clip_norm), "largest global norm of the gradients; 0: no limit")
      ("precision", value(o.precision), "numbers with which layers compute: float32, tf32, bfloat16 or float16")
      ("on-nonfinite", value(o.on_nonfinite), "after a NaN or an infinity: stop, skip (leave the step out) or rollback (to the newest checkpoint)")
      ("seed", value(o.seed), "seed of parameters, shuffling and dropout");
  where.add_options()
      ("device", value(o.device), "cpu, cuda (one GPU for each rank) or auto (GPUs if every rank can have one)")
      ("bucket-mb", bucket_size(o.bucket_mb), "size of a gradient bucket in MiB; auto: measured in the first steps")
      ("compression", value(o.compression), "of gradients: none, float16, bfloat16 or bfloat16:between-nodes")
      ("synchronize", value(o.synchronize), "gradients: averaged in each step. parameters:K or parameters:epoch: parameters are averaged every K steps or after each epoch")
      ("shard", value(o.shard), "keep parameters and optimizer state once a node, and divide the update by its ranks: auto (if it is possible), on or off")
      ("stall-seconds", seconds(o.stall_seconds, "--stall-seconds"), "report a collective that lasts longer; 0: never. Default: 60")
      ("stall-abort", seconds(o.stall_abort, "--stall-abort"), "end the job with exit code 70 if a collective lasts longer and no rank works meanwhile; 0: never. Default: 1800");
  keep.add_options()
      ("run-dir", text(o.run_dir), "folder for all files of the run")
      ("resume", value(o.resume), "auto (from the newest checkpoint of the run), none, or the path of a checkpoint")
      ("checkpoint-every", po::value<std::string>()->default_value("1epochs")->notifier([&o](const std::string& every) { o.checkpoint_every = CheckpointInterval::parse(every); }), "for example 500steps, 2epochs, 10min; auto: from the cost of a checkpoint and --mtbf; never")
      ("checkpoint-keep", value(o.checkpoint_keep), "newest checkpoints to keep, beside the best one")
      ("stop-before", po::value<std::string>()->notifier([&o](const std::string& time) { o.stop_before = required_duration("--stop-before", time); }), "save and exit with code 75 this long before the job's wall time ends, for example 2min")
      ("timeline", value(o.timeline), "steps that are recorded: off, steps=A-B or all");
  parser.more.add_options()
      ("features", names(o.data.features), "columns of the table that are joined to the input of the model: a,b or \"[a,b]\"")
      ("label", value(o.data.label), "column of the table with the classes")
      ("data-scratch", po::value(&o.data_scratch), "copy the data to a folder of each node before its ranks read it: a folder on the nodes, or auto (only from a parallel or network file system, to the first of SLURM_TMPDIR, TMPDIR, /tmp and /dev/shm that has room). The copy is removed as soon as it has been read")
      ("synthetic-samples", value(o.data.synthetic_samples), "number of samples of the synthetic data set")
      ("ranks-per-gpu", value(o.ranks_per_gpu), "number of ranks that may share a GPU, which needs all ranks on one node")
      ("transport", text(o.transport), "how ranks exchange data: auto (measure at the start which of the others is faster), hierarchical (shared memory within the nodes, links between them) or mpi (MPI's collectives). The default is FARANDOLE_TRANSPORT, or else auto")
      ("check-replicas", value(o.check_replicas), "compare a hash of the parameters on all ranks every this many steps, and end the job if they differ; 0: never")
      ("resume-optimizer", value(o.resume_optimizer), "same (refuse a checkpoint of another optimizer) or fresh (drop the optimizer state of such a checkpoint)")
      ("mtbf", po::value<std::string>()->default_value("24h")->notifier([&o](const std::string& time) { o.mtbf = required_duration("--mtbf", time); }), "mean time between failures of a job of this size, for --checkpoint-every auto")
      ("checkpoint-keep-every", value(o.checkpoint_keep_every), "also keep the first checkpoint of every this many steps for good; 0: none")
      ("gpu-activity", text(o.gpu_activity), "record GPU kernels and memory copies: off, steps=A-B, all or sample, which is the default if there is a GPU: 10 steps after the first 10, then 10 of every 1000, and the next 10 after SIGUSR2. NVTX ranges are recorded if NVTX_INJECTION64_PATH is set to libcupti.so at the start")
      ("recorder-mb", value(o.recorder_mb), "size of each rank's flight recorder in MiB. When it is full, the oldest events are overwritten; with --timeline steps=A-B the newest are dropped")
      ("recorder-dir", text(o.recorder_dir), "folder of the recorder files while the run lasts: run (the run directory), a folder on the nodes, or auto (a folder on the nodes if the run directory is on a parallel or network file system). The default is FARANDOLE_RECORDER_DIR, or else auto")
      ("merge-limit", value(o.merge_limit), "largest number of ranks in timeline.json.gz; 0: all. Above this limit, only the first, last and slowest ranks and a sample of the others are merged")
      ("log-steps", value(o.log_steps), "number of steps between two lines of metrics.jsonl")
      ("tensorboard", po::bool_switch(&o.tensorboard), "also write the metrics to RUN/tensorboard, for TensorBoard")
      ("prometheus", po::value(&o.prometheus), "folder in which each rank also writes its metrics for the textfile collector of Prometheus's node exporter")
      ("peak-tflops", value(o.peak_tflops), "most that one device (on CPUs: one rank) can do in the precision of the training, in 10^12 floating-point operations per second, for MFU; 0: from a table of known GPUs")
      ("sample", value(o.sample), "bytes of text to generate at the end (gpt)");
  // clang-format on
  parser.visible.add(what).add(how).add(where).add(keep);
  return parser;
}

bool TrainOptions::needs_cpu() const {
  return parse_compression(compression).kind != Compression::Kind::none ||
         parse_synchronization(synchronize).of_parameters();
}

void TrainOptions::check() const {
  if (data.path.empty()) throw UserError("--data is missing; name a file or folder, or 'synthetic'");
  if (run_dir.empty()) throw UserError("--run-dir is missing; name the folder for the files of the run");
  one_of(model.name, {"mnist", "mlp", "gpt"}, "model");
  one_of(optimizer, {"sgd", "adam", "adamw", "rmsprop"}, "optimizer");
  one_of(schedule, {"constant", "cosine"}, "schedule");
  one_of(device, {"cpu", "cuda", "auto"}, "device");
  if (device == "cuda" && needs_cpu())
    throw UserError("--compression and --synchronize parameters work on CPUs only; use --device cpu");
  in_range(1, ranks_per_gpu, "ranks-per-gpu");
  if (transport) one_of(*transport, {"auto", "hierarchical", "mpi"}, "transport");
  one_of(precision, {"float32", "tf32", "bfloat16", "float16"}, "precision");
  one_of(resume_optimizer, {"same", "fresh"}, "resume-optimizer");
  in_range(1, epochs, "epochs");
  in_range(0, steps, "steps");
  in_range(1, batch, "batch-size");
  in_range(1, accumulate, "accumulate", 10'000);
  in_range(0, warmup_steps, "warmup-steps");
  in_range(1, checkpoint_keep, "checkpoint-keep");
  in_range(0, checkpoint_keep_every, "checkpoint-keep-every");
  in_range(1, log_steps, "log-steps");
  in_range(0, check_replicas, "check-replicas");
  if (check_replicas > 0 && parse_synchronization(synchronize).of_parameters())
    throw UserError("--check-replicas cannot be used with --synchronize " + synchronize +
                    ", because the ranks' parameters differ between two averages");
  one_of(on_nonfinite, {"stop", "skip", "rollback"}, "on-nonfinite");
  if (on_nonfinite == "rollback" && parse_synchronization(synchronize).of_parameters())
    throw UserError("--on-nonfinite rollback cannot be used with --synchronize " + synchronize +
                    ", because the ranks do not look at their gradients together; use skip");
  in_range(0, sample, "sample");
  in_range(1, static_cast<std::int64_t>(recorder_mb), "recorder-mb");
  not_negative(lr, "lr");
  not_negative(momentum, "momentum");
  not_negative(weight_decay, "weight-decay");
  not_negative(clip_norm, "clip-norm");
  not_negative(peak_tflops, "peak-tflops");
  if (!(data.held_out > 0 && data.held_out < 1))
    throw UserError(fmt::format("--validation is {}; it must lie between 0 and 1", data.held_out));
  if (sample > 0 && model.name != "gpt")
    throw UserError("--sample needs --model gpt; no other model generates text");
  if (optimizer != "sgd" && optimizer != "rmsprop" && momentum > 0)
    throw UserError("--momentum cannot be used with --optimizer " + optimizer + "; use sgd or rmsprop");
  parse_shard(shard);
  const bool compresses = parse_compression(compression).of_ranks();
  if (parse_synchronization(synchronize).of_parameters() &&
      parse_compression(compression).kind != Compression::Kind::none)
    throw UserError("--compression applies to gradients; it cannot be used with --synchronize " +
                    synchronize);
  if (precision == "float16" && parse_synchronization(synchronize).of_parameters())
    throw UserError("--precision float16 cannot be used with --synchronize " + synchronize +
                    "; use bfloat16");
  if (!bucket_mb && (compresses || parse_synchronization(synchronize).of_parameters()))
    throw UserError(
        fmt::format("--bucket-mb auto cannot be used with {}; give a size",
                    compresses ? "--compression " + compression : "--synchronize " + synchronize));
  StepWindow::parse(timeline, "--timeline");
  if (gpu_activity) ActivitySteps::parse(*gpu_activity, "--gpu-activity");
}

std::string TrainOptions::to_json() const {
  Json json = {{"model", {{"name", model.name}}},
               {"data", data.path},
               {"features", data.features},
               {"label", data.label},
               {"epochs", epochs},
               {"steps", steps},
               {"batch", batch},
               {"accumulate", accumulate},
               {"seed", seed},
               {"optimizer", optimizer},
               {"lr", lr},
               {"momentum", momentum},
               {"weight_decay", weight_decay},
               {"scale_lr", scale_lr},
               {"warmup_steps", warmup_steps},
               {"schedule", schedule},
               {"clip_norm", clip_norm},
               {"precision", precision},
               {"device", device},
               {"bucket_mb", nullptr},
               {"compression", compression},
               {"synchronize", synchronize},
               {"on_nonfinite", on_nonfinite},
               {"check_replicas", check_replicas},
               {"held_out", data.held_out}};
  if (bucket_mb) json["bucket_mb"] = *bucket_mb;
  if (data.path == "synthetic") json["synthetic_samples"] = data.synthetic_samples;
  if (model.name == "gpt") json["dropout"] = model.dropout;
  auto& shape = json["model"];  // A checkpoint of another shape is refused.
  if (model.name != "mnist") {
    shape["layers"] = model.layers;
    shape["width"] = model.width;
  }
  if (model.name == "gpt") {
    shape["heads"] = model.heads;
    shape["context"] = model.context;
  }
  return json_text(json);
}

std::vector<std::string> changed_options(const std::string& saved, const std::string& now) {
  // The data of an epoch has a check of its own (check_order), and a model of another shape is refused.
  constexpr std::array may_differ{"model", "data", "epochs", "steps", "check_replicas"};
  const auto there = try_parse_json(saved);
  const auto here = parse_json(now);
  std::vector<std::string> changes;
  if (!there.is_object()) return changes;
  const auto text = [](const Json& value) {
    if (value.is_number_float()) return fmt::format("{}", value.get<double>());
    return value.is_string() ? value.get<std::string>() : json_text(value);
  };
  for (const auto& [key, value] : here.items()) {
    const auto old = there.find(key);
    if (old == there.end() || *old == value || std::ranges::count(may_differ, key) > 0) continue;
    if (old->is_null() || value.is_null()) continue;  // It was measured, or will be.
    auto option = key;
    std::ranges::replace(option, '_', '-');
    changes.push_back(fmt::format("--{} {} instead of {}", option, text(value), text(*old)));
  }
  return changes;
}

}  // namespace farandole
