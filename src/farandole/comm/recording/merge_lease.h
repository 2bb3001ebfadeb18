// Decides which rank of a job, on any host, merges a requested trace: the rank that has created a file. A
// separate thread touches the file until the merge is done, because the merge may wait long for its disk.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/run/run_lease.h"

namespace farandole {

class MergeLease {
 public:
  static constexpr std::chrono::milliseconds usual_beat{1000};

  // Creates the file unless it exists.
  // Throws: std::system_error if no thread can be started.
  explicit MergeLease(std::filesystem::path file, std::chrono::milliseconds beat = usual_beat);
  ~MergeLease();  // removes the file unless another rank has replaced it
  MergeLease(const MergeLease&) = delete;
  MergeLease& operator=(const MergeLease&) = delete;
  bool won() const { return fd_.get() >= 0; }

  // Removes a lease whose state is still `stale`. If its owner resumes, two ranks merge, each
  // into its own file.
  static void remove(const std::filesystem::path& file, const FileSight& stale);

 private:
  const std::filesystem::path file_;
  const OwnedDescriptor fd_;
  std::optional<Heartbeat> heartbeat_;
};

}  // namespace farandole
