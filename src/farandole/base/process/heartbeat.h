// Shows through a file, also to processes on other hosts, that a process is alive: a helper thread
// touches the file.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <sys/types.h>
#include <thread>

#include "farandole/base/process/quiet_thread.h"

namespace farandole {

// The state of a file that a heartbeat touches. It changes with each beat.
struct FileSight {
  dev_t device = 0;
  ino_t inode = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileSight&) const = default;
  bool is_same_file(const FileSight& other) const { return device == other.device && inode == other.inode; }
};
std::optional<FileSight> sight_of(int fd);
std::optional<FileSight> sight_of(const std::filesystem::path& file);  // std::nullopt if there is no file

class Heartbeat {
 public:
  // Calls `after_beat` on the helper thread. `fd` must stay open as long as this object exists.
  // Throws: std::system_error if no thread can be started.
  Heartbeat(
      int fd, std::chrono::milliseconds beat, std::function<void()> after_beat = [] {});
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole
