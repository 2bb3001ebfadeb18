#include "farandole/job/run/run_directory.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/log.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/version.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/comm/job/world.h"
#include "farandole/job/run/metrics_log.h"

namespace farandole {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

std::map<std::string, std::string> library_versions() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return {{"farandole", version()},
          {"mpi", World::library_version()},
          {"hdf5", fmt::format("{}.{}.{}", major, minor, release)}};
}

RunDirectory::RunDirectory(std::filesystem::path folder, std::optional<RunProgress> earlier)
    : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    throw UserError("run directory " + folder_.string() + " cannot be created: " + error.message() +
                    "; choose another --run-dir");
  if (::access(folder_.c_str(), W_OK | X_OK) != 0)
    throw UserError("run directory " + folder_.string() + " is not writable; choose another --run-dir");
  earlier_ = earlier ? *earlier : read_run_progress(folder_);
}

std::optional<LostWork> RunDirectory::started(RunFacts facts, std::int64_t step) {
  const auto earlier = read_run_facts(run_json());
  const bool done = earlier.exit_code == static_cast<int>(ExitCode::done);
  const bool is_new = done && step == 0;  // another run in the folder of one that has ended well
  facts.restarts = earlier.restarts && !is_new ? *earlier.restarts + 1 : 0;
  // A kill may leave no other sign than run.json. The checkpoint may be published after the last step.
  const auto checkpoint_ns = step > 0 ? changed_ns(checkpoints() / checkpoint_name(step)) : 0;
  LostWork lost{std::max<std::int64_t>(0, earlier_.step.value_or(0) - step),
                std::max(earlier_.begin_ns, checkpoint_ns),
                std::max({earlier_.end_ns, checkpoint_ns, changed_ns(run_json())})};
  facts.lost_steps = is_new ? 0 : earlier.lost_steps.value_or(0) + lost.steps;
  facts.started = utc_now();
  write_run_facts(run_json(), facts);
  facts_ = std::move(facts);
  return earlier.found && !done ? std::optional(lost) : std::nullopt;
}

void RunDirectory::ended(int exit_code) {
  if (!facts_) return;
  facts_->ended = utc_now();
  facts_->exit_code = exit_code;
  try {
    const auto events = count_events(metrics());
    facts_->skipped_steps = events.skipped_steps;
    facts_->rollbacks = events.rollbacks;
  } catch (const CorruptInput&) {  // The metrics are not in a file, so the run could not begin.
  }
  try {
    write_run_facts(run_json(), *facts_);
  } catch (const Error& error) {
    log_warning("cannot write to run.json that the run ended with exit code {}: {}", exit_code, error.what());
  }
}

void RunDirectory::add(const std::function<void(RunFacts&)>& change) {
  if (!facts_) return;
  change(*facts_);
  try {
    write_run_facts(run_json(), *facts_);
  } catch (const Error& error) {  // On a full disk, training goes on.
    log_warning("cannot write to run.json: {}", error.what());
  }
}

}  // namespace farandole
