#include "farandole/launch/slurm/submission.h"

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/text/json.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_name = "submitted.json";

}  // namespace

void record_submission(const fs::path& run_dir, const std::string& job) {
  write_file_atomically(run_dir / file_name, Json{{"slurm_job", job}}.dump() + "\n");
}

std::string submitted_job(const fs::path& run_dir) {
  const auto text = read_whole_file(run_dir / file_name);
  const auto record = text ? try_parse_json(*text) : Json();
  if (!record.is_object() || !record.contains("slurm_job") || !record["slurm_job"].is_string()) return "";
  return record["slurm_job"].get<std::string>();
}

JobState ask_for_submitted_job(const fs::path& run_dir, const std::string& job,
                               std::chrono::milliseconds patience) {
  auto answer = ask_for_job(job, patience);
  const auto script = "Command=" + fs::absolute(run_dir / "job.sbatch").lexically_normal().string();
  return answer.text.find(script) == std::string::npos ? JobState() : std::move(answer.state);
}

}  // namespace farandole
