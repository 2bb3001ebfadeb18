// The layout of a run directory, its run.json, and the versions that it names. Used on rank 0.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_json.h"
#include "farandole/timeline/recorder/run_progress.h"

namespace farandole {

// The versions that run.json and checkpoints name, by library, without that of PyTorch.
std::map<std::string, std::string> library_versions();

// What a start leaves that was not done: the steps after its last checkpoint have to be done again.
// Units: nanoseconds of CLOCK_REALTIME.
struct LostWork {
  std::int64_t steps = 0;
  std::int64_t begin_ns = 0;  // The start began, or its checkpoint was written.
  std::int64_t end_ns = 0;    // Its last sign of work.
};

class RunDirectory {
 public:
  // Creates the folder if it does not exist. `earlier` is how far an earlier start has come. Without a value
  // it is read here, so that this must be called before a new start records.
  // Throws: UserError if the folder is not writable.
  explicit RunDirectory(std::filesystem::path folder, std::optional<RunProgress> earlier = std::nullopt);

  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path run_json() const { return run_json_of(folder_); }

  // Writes run.json with the start time. "restarts" counts the earlier starts of this run, and
  // "lost_steps" the steps that they had done after the step from which the next start continued. Returns
  // what the start before this one had done after `step`; std::nullopt if there was none, or if it was done.
  std::optional<LostWork> started(RunFacts facts, std::int64_t step);
  // Adds what is known only later, for example after the first step. On a full disk, this only warns.
  void add(const std::function<void(RunFacts&)>& change);
  // What run.json says; nothing before started().
  const std::optional<RunFacts>& facts() const { return facts_; }
  // Adds "ended" and "exit_code", and the numbers of skipped steps and rollbacks in metrics.jsonl. If the
  // file cannot be written, this call only warns, because the run has already ended. Without an earlier
  // started() it does nothing.
  void ended(int exit_code);

 private:
  std::filesystem::path folder_;
  RunProgress earlier_;
  std::optional<RunFacts> facts_;
};

}  // namespace farandole
