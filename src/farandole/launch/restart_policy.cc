#include "farandole/launch/restart_policy.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr int most_same_failures = 3;

std::string newest_checkpoint(const fs::path& run) {
  std::string newest;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", absent))
    if (const auto name = entry.path().filename().string();
        name.starts_with("step-") && name.ends_with(".h5"))
      newest = std::max(newest, name);
  return newest;
}

std::string last_line(const fs::path& file) {
  constexpr std::streamoff most = 4096;
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  stream.seekg(std::max<std::streamoff>(0, stream.tellg() - most));
  std::string last;
  for (std::string line; std::getline(stream, line);)
    if (!stream.eof()) last = line;  // A line that a kill cut off has no end.
  return last;
}

}  // namespace

std::string progress_of(const fs::path& run) {
  std::string progress;
  std::error_code error;
  if (fs::is_regular_file(run / "metrics.jsonl", error)) {
    const auto json =
        nlohmann::json::parse(last_line(run / "metrics.jsonl"), nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer())
      progress = fmt::format("step {}", json["step"].get<std::int64_t>());
  }
  if (const auto checkpoint = newest_checkpoint(run); !checkpoint.empty())
    progress += fmt::format("{}checkpoint {}", progress.empty() ? "" : ", ", checkpoint);
  return progress;
}

RestartPolicy::Decision RestartPolicy::decide(const JobEnd& end) {
  const auto code = static_cast<ExitCode>(end.exit_code);
  if (max_restarts_ == 0 || end.told || code == ExitCode::done || code == ExitCode::user_error ||
      code == ExitCode::corrupt_input || code == ExitCode::preempted)
    return {};
  // Which of several ranks failed first is chance, so it does not belong to the failure.
  const auto progress = end.run.empty() ? std::string() : progress_of(end.run);
  const auto failure =
      progress.empty() ? progress : fmt::format("exit code {} at {}", end.exit_code, progress);
  same_failures_ = !failure.empty() && failure == last_failure_ ? same_failures_ + 1 : 1;
  last_failure_ = failure;
  if (same_failures_ >= most_same_failures)
    return {false, true,
            fmt::format("the job is not started again: it has failed {} times in a row with {}",
                        same_failures_, failure)};
  if (restarts_ == max_restarts_)
    return {false, true,
            fmt::format("the job is not started again: it has been started again {} time{} (--max-restarts)",
                        restarts_, restarts_ == 1 ? "" : "s")};
  ++restarts_;
  return {true, false, fmt::format("restart {} of {}", restarts_, max_restarts_)};
}

}  // namespace farandole
