#include "farandole/trainer/train_options.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/fusion/compression.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/launch/slurm/batch_script.h"
#include "farandole/timeline/timeline.h"
#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/trainer/loop_option_table.h"

namespace farandole {
namespace {

auto seconds(std::optional<double>& variable, const char* option) {
  return taken_by([&variable, option](const std::string& text) {
    variable = WatchdogOptions::parse_seconds(option, text);
  });
}

// As farandole fit has them: "[a,b]" is one vector, as all features are here, also without brackets.
auto names(std::vector<std::string>& variable) {
  return taken_by([&](const std::string& text) {
           const bool joined = text.starts_with('[') && text.ends_with(']');
           variable = split_at_commas(joined ? text.substr(1, text.size() - 2) : text);
         })
      ->default_value(fmt::format("{}", fmt::join(variable, ",")));
}

template <class Seconds>  // a double, or one that may be missing
auto duration(Seconds& variable, const char* option) {
  return taken_by([&variable, option](const std::string& text) {
    const auto seconds = parse_duration(text);
    if (!seconds)
      throw UserError(
          fmt::format("{} cannot be '{}'; give a duration such as 90s, 2min or 1h", option, text));
    variable = *seconds;
  });
}

auto bucket_size(std::optional<double>& variable) {
  return taken_by([&](const std::string& text) {
           if (text == "auto") return variable.reset();
           variable = parse_number<double>(text);
           if (!variable || !(*variable > 0 && *variable <= 1e6))
             throw UserError(fmt::format(
                 "--bucket-mb cannot be '{}'; give a number of MiB above 0 and up to 1000000, or auto",
                 text));
         })
      ->default_value(fmt::format("{}", *variable));
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
    return taken_by([&variable](const std::string& given) { variable = given; });
  };
  OptionGroups groups;
  // clang-format off
  groups.data.add_options()
      ("model", with_default(o.model.name), "mnist, mlp or gpt")
      ("data", text(o.data.path), "folder of IDX files, table (HDF5, CSV, NumPy or IDX; see --features in --help all), text file, folder of text files, or synthetic")
      ("layers", with_default(o.model.layers), "blocks (gpt) or linear layers (mlp)")
      ("width", with_default(o.model.width), "embedding size (gpt) or hidden units (mlp)")
      ("heads", with_default(o.model.heads), "attention heads (gpt)")
      ("context", with_default(o.model.context), "bytes per sample (gpt)")
      ("dropout", with_default(o.model.dropout), "dropout probability (gpt)")
      ("validation", with_default(o.data.held_out), "fraction of the data that is used for validation only, if the data has no test set");
  groups.training.add_options()
      ("optimizer", with_default(o.optimizer), "sgd, adam, adamw or rmsprop")
      ("schedule", with_default(o.schedule), "after the warm-up: constant, or cosine (to 0 at the last step)")
      ("steps", with_default(o.steps), "stop after this number of optimizer steps; 0: --epochs decides");
  parser.more.add_options()
      ("features", names(o.data.features), "columns of the table that are joined to the input of the model: a,b or \"[a,b]\"")
      ("label", with_default(o.data.label), "column of the table with the classes")
      ("data-scratch", text(o.data_scratch), "copy the data to a folder of each node before its ranks read it: a folder on the nodes, or auto (only from a parallel or network file system, to the first of SLURM_TMPDIR, TMPDIR, /tmp and /dev/shm that has room). The copy is removed as soon as it has been read")
      ("synthetic-samples", with_default(o.data.synthetic_samples), "number of samples of the synthetic data set")
      ("ranks-per-gpu", with_default(o.ranks_per_gpu), "number of ranks that may share a GPU, which needs all ranks on one node")
      ("transport", text(o.transport), "how ranks exchange data: auto (measure at the start which of the others is faster), hierarchical (shared memory within the nodes, links between them) or mpi (MPI's collectives). The default is FARANDOLE_TRANSPORT, or else auto")
      ("check-replicas", with_default(o.check_replicas), "compare a hash of the parameters on all ranks every this many steps, and end the job if they differ; 0: never")
      ("resume-optimizer", with_default(o.resume_optimizer), "same (refuse a checkpoint of another optimizer) or fresh (drop the optimizer state of such a checkpoint)")
      ("mtbf", duration(o.mtbf, "--mtbf")->default_value("24h"), "mean time between failures of a job of this size, for --checkpoint-every auto")
      ("checkpoint-keep-every", with_default(o.checkpoint_keep_every), "also keep the first checkpoint of every this many steps for good; 0: none")
      ("gpu-activity", text(o.gpu_activity), "record GPU kernels and memory copies: off, steps=A-B, all or sample, which is the default if there is a GPU: 10 steps after the first 10, then 10 of every 1000, and the next 10 after SIGUSR2. NVTX ranges are recorded if NVTX_INJECTION64_PATH is set to libcupti.so at the start")
      ("recorder-mb", with_default(o.recorder_mb), "size of each rank's flight recorder in MiB. When it is full, the oldest events are overwritten; with --timeline steps=A-B the newest are dropped")
      ("recorder-dir", text(o.recorder_dir), "folder of the recorder files while the run lasts: run (the run directory), a folder on the nodes, or auto (a folder on the nodes if the run directory is on a parallel or network file system). The default is FARANDOLE_RECORDER_DIR, or else auto")
      ("merge-limit", with_default(o.merge_limit), "largest number of ranks in timeline.json.gz; 0: all. Above this limit, only the first, last and slowest ranks and a sample of the others are merged")
      ("log-steps", with_default(o.log_steps), "number of steps between two lines of metrics.jsonl")
      ("sample", with_default(o.sample), "bytes of text to generate at the end (gpt)");
  add_loop_options(groups, parser.more, o);
  groups.devices.add_options()
      ("bucket-mb", bucket_size(o.bucket_mb), "size of a gradient bucket in MiB; auto: measured in the first steps")
      ("compression", with_default(o.compression), "of gradients: none, float16, bfloat16 or bfloat16:between-nodes")
      ("synchronize", with_default(o.synchronize), "gradients: averaged in each step. parameters:K or parameters:epoch: parameters are averaged every K steps or after each epoch")
      ("stall-seconds", seconds(o.stall_seconds, "--stall-seconds"), "report a collective that lasts longer; 0: never. Default: 60")
      ("stall-abort", seconds(o.stall_abort, "--stall-abort"), "end the job with exit code 70 if a collective lasts longer and no rank works meanwhile; 0: never. Default: 1800");
  groups.output.add_options()
      ("run-dir", text(o.run_dir), "folder for all files of the run")
      ("resume", with_default(o.resume), "auto (from the newest checkpoint of the run), none, or the path of a checkpoint")
      ("checkpoint-every", with_default(o.checkpoint_every), "for example 500steps, 2epochs, 10min; auto: from the cost of a checkpoint and --mtbf; never")
      ("checkpoint-keep", with_default(o.checkpoint_keep), "newest checkpoints to keep, beside the best one")
      ("stop-before", duration(o.stop_before, "--stop-before"), "save and exit with code 75 this long before the job's wall time ends, for example 2min")
      ("timeline", with_default(o.timeline), "steps that are recorded: off, steps=A-B or all");
  // clang-format on
  parser.visible.add(groups.data).add(groups.training).add(groups.devices).add(groups.output);
  return parser;
}

bool TrainOptions::needs_cpu() const {
  return parse_compression(compression).kind != Compression::Kind::none ||
         parse_synchronization(synchronize).of_parameters();
}

void TrainOptions::check() const {
  if (data.path.empty()) throw UserError("--data is missing; name a file or folder, or 'synthetic'");
  if (run_dir.empty()) throw UserError("--run-dir is missing; name the folder for the files of the run");
  check_one_of("model", model.name, {"mnist", "mlp", "gpt"});
  check_one_of("optimizer", optimizer, {"sgd", "adam", "adamw", "rmsprop"});
  check_one_of("schedule", schedule, {"constant", "cosine"});
  check_loop_options(*this);
  check_one_of("resume-optimizer", resume_optimizer, {"same", "fresh"});
  if (transport) check_one_of("transport", *transport, {"auto", "hierarchical", "mpi"});
  check_range("ranks-per-gpu", ranks_per_gpu, 1);
  check_range("steps", steps, 0);
  check_range("checkpoint-keep", checkpoint_keep, 1);
  check_range("checkpoint-keep-every", checkpoint_keep_every, 0);
  check_range("log-steps", log_steps, 1);
  check_range("check-replicas", check_replicas, 0);
  check_range("sample", sample, 0);
  check_range("recorder-mb", static_cast<std::int64_t>(recorder_mb), 1);
  StepWindow::parse(timeline, "--timeline");
  if (gpu_activity) ActivitySteps::parse(*gpu_activity, "--gpu-activity");
  if (!(data.held_out > 0 && data.held_out < 1))
    throw UserError(fmt::format("--validation is {}; it must lie between 0 and 1", data.held_out));
  if (sample > 0 && model.name != "gpt")
    throw UserError("--sample needs --model gpt; no other model generates text");
  if (device == "cuda" && needs_cpu())
    throw UserError("--compression and --synchronize parameters work on CPUs only; use --device cpu");
  const auto compressed = parse_compression(compression);
  if (!bucket_mb && compressed.of_ranks())
    throw UserError("--bucket-mb auto cannot be used with --compression " + compression + "; give a size");
  if (!parse_synchronization(synchronize).of_parameters()) return;
  const auto refuse_if = [&](bool used, const char* option, const char* instead) {
    if (used)
      throw UserError(fmt::format("{} cannot be used with --synchronize {}{}", option, synchronize, instead));
  };
  refuse_if(check_replicas > 0, "--check-replicas",
            ", because the ranks' parameters differ between two averages");
  refuse_if(on_nonfinite == "rollback", "--on-nonfinite rollback",
            ", because the ranks do not look at their gradients together; use skip");
  refuse_if(compressed.kind != Compression::Kind::none, "--compression", ", because it applies to gradients");
  refuse_if(precision == "float16", "--precision float16", "; use bfloat16");
  refuse_if(!bucket_mb, "--bucket-mb auto", "; give a size");
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
