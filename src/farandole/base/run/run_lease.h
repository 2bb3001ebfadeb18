// One job at a time writes into a run directory, also where several hosts share it (NFS, Lustre). The job
// holds a file RUN/lease-0001.json that says who it is, and touches it every few seconds. A job that was
// killed leaves its file; the next job recognizes this, and takes over with the next number.
// Thread safety: none; use from one thread at a time. Any thread may call held() and sight_of() at any time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>

#include "farandole/base/files/file_bytes.h"
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

// Shows through a file, also to processes on other hosts, that this process is alive: a helper thread
// touches the file.
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

// Throws: UserError if a job on this host holds the lease of `run_dir`. Waits for nothing, so a job on
// another host is not seen.
void refuse_if_in_use(const std::filesystem::path& run_dir);

// The process of rank 0 that holds the lease of a run directory.
struct LeaseHolder {
  std::string host;
  std::int64_t pid = 0;
  std::optional<bool> alive;    // No value: its host is another one, or cannot be asked.
  std::int64_t changed_ns = 0;  // CLOCK_REALTIME, of its last sign of life
};
// std::nullopt if there is no lease. Never waits.
std::optional<LeaseHolder> find_lease_holder(const std::filesystem::path& run_dir);
// Says whether a job holds the lease of `run_dir` and is alive. For a job on another host, looks for some
// seconds whether it touches its file.
bool lease_is_alive(const std::filesystem::path& run_dir);
// Looks for some seconds whether the holder of the lease touches its file.
bool lease_beats(const std::filesystem::path& run_dir);

class RunLease {
 public:
  struct Times {
    std::chrono::milliseconds beat{3'000};
    // A holder on another host that has not touched its file for this time is dead.
    std::chrono::milliseconds patience{20'000};
  };

  // Takes the lease of `run_dir`, which must exist. If another job holds it, finds out whether that job is
  // alive: at once if it runs on this host or was the same Slurm job before a requeue, otherwise within
  // `times.patience`. Calls lost(message) on a helper thread if another job has taken over, because this one
  // was stopped for too long.
  // Throws: UserError if another job holds the lease. The message says which.
  // Throws: Error if the file cannot be created.
  RunLease(const std::filesystem::path& run_dir, std::function<void(const std::string&)> lost, Times times);
  RunLease(const std::filesystem::path& run_dir, std::function<void(const std::string&)> lost)
      : RunLease(run_dir, std::move(lost), Times()) {}
  ~RunLease();  // gives the lease back
  RunLease(const RunLease&) = delete;
  RunLease& operator=(const RunLease&) = delete;

  const std::filesystem::path& run_dir() const { return run_dir_; }
  // Asks the file system whether another job has taken over. Ask before a file of the run directory is
  // replaced or removed.
  // Throws: Error if the file system does not answer, for example because no descriptor is free. Then this
  // is not known.
  bool held() const;

 private:
  bool try_to_take(const Times& times);

  const std::filesystem::path run_dir_;
  int number_ = 0;
  OwnedDescriptor fd_;
  FileSight own_;
  std::optional<Heartbeat> heartbeat_;
};

}  // namespace farandole
