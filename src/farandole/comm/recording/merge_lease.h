// Decides which rank of a job, on any host, merges a requested trace: the rank that has created a file. It
// touches the file until the merge is done.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sys/types.h>
#include <thread>

#include "farandole/base/owned_descriptor.h"

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

  // The state of a lease file. It changes with each beat while the owner runs.
  struct Sight {
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Sight&) const = default;
  };
  static std::optional<Sight> look(const std::filesystem::path& file);  // std::nullopt if there is no file
  // Removes a lease whose state is still `stale`. If its owner resumes, two ranks merge, each
  // into its own file.
  static void remove(const std::filesystem::path& file, const Sight& stale);

 private:
  void beat_until_done();

  const std::filesystem::path file_;
  const std::chrono::milliseconds beat_;
  const OwnedDescriptor fd_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace farandole
