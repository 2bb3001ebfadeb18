#include "farandole/launch/supervisor/supervised_run.h"

#include <array>
#include <climits>
#include <fmt/format.h>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/run_files.h"

namespace farandole {
namespace {

std::filesystem::path folder_in(int answer) {
  std::array<char, PATH_MAX> text;
  const auto length = read_bytes(answer, 0, std::as_writable_bytes(std::span(text)), "memfd");
  const std::filesystem::path folder(std::string(text.data(), length));
  std::error_code ignored;
  return folder.is_absolute() && std::filesystem::is_directory(folder, ignored) ? folder : "";
}

}  // namespace

SupervisedRun::SupervisedRun(LaunchedRun known, int rank)
    : rank_(rank),
      answer_(known.folder.empty() ? ::memfd_create(run_dir_memory, MFD_CLOEXEC) : -1),
      run_(std::move(known)),
      launch_folder_(run_) {}

std::pair<std::string, std::optional<std::string>> SupervisedRun::question() const {
  if (answer_.get() < 0) return {run_dir_wanted, std::nullopt};
  return {run_dir_wanted, fmt::format("/proc/{}/fd/{}", ::getpid(), answer_.get())};
}

const std::filesystem::path& SupervisedRun::folder() {
  if (answer_.get() < 0) return run_.folder;
  run_ = {folder_in(answer_.get()), true};
  launch_folder_ = LaunchFolder(run_);
  return run_.folder;
}

void SupervisedRun::save_recorder() {
  if (folder().empty()) return;
  try {
    copy_out(recorder_file(run_.folder, rank_));
  } catch (const Error&) {
  }
}

void SupervisedRun::bring_recorder() {
  if (!folder().empty()) stage_out(recorder_file(run_.folder, rank_));
}

void SupervisedRun::end(RankRecord& record) {
  if (answer_.get() >= 0) record.run_dir = folder();
  launch_folder_.end(record);
}

}  // namespace farandole
