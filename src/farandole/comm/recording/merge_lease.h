// Which of a job's ranks, on any host, merges a trace that was asked for: the one that has created a file,
// which it touches until it is done. Usable from any thread.
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

  // Creates the file, unless it is there. Throws std::system_error where there is no room for a thread.
  explicit MergeLease(std::filesystem::path file, std::chrono::milliseconds beat = usual_beat);
  ~MergeLease();  // removes the file, unless another has taken its place
  MergeLease(const MergeLease&) = delete;
  MergeLease& operator=(const MergeLease&) = delete;
  bool won() const { return fd_.get() >= 0; }

  // How somebody's claim looks, which changes with each beat while its process runs.
  struct Sight {
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Sight&) const = default;
  };
  static std::optional<Sight> look(const std::filesystem::path& file);  // nullopt: there is none
  // Removes a claim that still looks so. Should its owner come back, two merge, each into a file of its own.
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
