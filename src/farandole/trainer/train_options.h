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
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/loop_options.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

struct TrainOptions : LoopOptions {
  ModelOptions model;
  DataOptions data;
  std::string data_scratch;              // auto | a folder; empty: the data is not copied.
  int ranks_per_gpu = 1;                 // that share a GPU
  std::optional<std::string> transport;  // see Session::use_transport()

  std::optional<double> stop_before;      // Seconds before the job's wall time ends.
  std::string resume = "auto";            // auto | none | a checkpoint's path
  std::string resume_optimizer = "same";  // same | fresh

  std::string timeline = "all";
  std::optional<std::string> gpu_activity;  // As ActivitySteps::parse(); no value: sample if there is a GPU.
  std::size_t recorder_mb = 64;
  std::optional<std::string> recorder_dir;  // auto | run | a folder; no value: FARANDOLE_RECORDER_DIR.
  std::size_t merge_limit = 64;             // Ranks in timeline.json.gz; 0: all.
  // Units: seconds in one collective before it is reported, and before the job ends. No
  // value: the environment decides.
  std::optional<double> stall_seconds, stall_abort;
  std::int64_t sample = 0;  // Bytes of text to generate at the end; gpt only.

  // Returns the options that decide what is trained and how, as JSON with sorted keys. Checkpoints and
  // run.json store this text.
  std::string to_json() const;
  // Throws: UserError if an option has a wrong value; the message names the option.
  void check() const;
  bool needs_cpu() const;  // because of an option that works on CPUs only
};

// Describes each option of `now` that differs from `saved`, as in "--lr 0.1 instead of 0.01"; both are
// results of to_json(). Options that only one of them has, of which one is null, or that may differ without
// changing how a step is trained are left out.
std::vector<std::string> changed_options(const std::string& saved, const std::string& now);

// Binds every option to `options`, which must outlive the parser.
OptionParser train_option_parser(TrainOptions& options, const std::filesystem::path& profiles);

}  // namespace farandole
