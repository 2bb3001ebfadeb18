// The files of a folder of checkpoints, as seen by a program that resumes from it.
// Thread safety: any thread may call this at any time.
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/run/run_files.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"

namespace farandole {
namespace {

CheckpointInfo info_of(const std::filesystem::path& file, const Snapshot& header) {
  std::error_code vanished;
  return {file,
          header.step,
          header.epoch,
          header.score,
          std::filesystem::file_size(file, vanished),
          header.not_finite};
}

// `read` must verify the file.
std::optional<std::pair<std::filesystem::path, Snapshot>> newest_checkpoint(
    const std::filesystem::path& folder, const std::function<Snapshot(const std::filesystem::path&)>& read) {
  const auto files = checkpoint_files(folder);
  for (const auto& file : files) {
    try {
      auto snapshot = read(file);
      if (snapshot.not_finite.empty()) return std::pair(file, std::move(snapshot));
      log_warning("a checkpoint is skipped: {}: {} has a NaN or an infinity", file.string(),
                  snapshot.not_finite);
    } catch (const Error& error) {
      log_warning("a checkpoint is skipped: {}", error.what());
    }
  }
  if (files.empty()) return std::nullopt;
  throw CorruptInput(fmt::format("none of the {} checkpoints in {} is usable; remove them to start anew",
                                 files.size(), folder.string()));
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("step-{:08}.h5", step);
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& file) {
  return info_of(file, read_checkpoint_header(file));
}

std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder) {
  std::vector<CheckpointInfo> found;
  for (const auto& file : checkpoint_files(folder)) {
    try {
      found.push_back(read_checkpoint_info(file));
    } catch (const Error& error) {
      log_debug("left out: {}", error.what());
    }
  }
  return found;
}

std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder) {
  const auto found = newest_checkpoint(folder, verify_checkpoint);
  return found ? std::optional(info_of(found->first, found->second)) : std::nullopt;
}

std::optional<std::pair<std::filesystem::path, Snapshot>> read_newest_checkpoint(
    const std::filesystem::path& folder, const ArrayMemory& memory) {
  return newest_checkpoint(folder,
                           [&](const std::filesystem::path& file) { return read_checkpoint(file, memory); });
}

}  // namespace farandole
