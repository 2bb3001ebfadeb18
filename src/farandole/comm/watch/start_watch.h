// Watches the start of a job. It waits for all ranks, for ever if one of them runs another program.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <thread>

#include "farandole/base/clock.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/watch/watchdog.h"

namespace farandole {

// The ranks meet between the constructor and the destructor. If a rank of this host has ended in that time,
// they cannot meet any more: one rank of the host says so, and all of them end with ExitCode::user_error.
// After WatchdogOptions::stall_seconds, but not before 30 s, one rank of the host reports which ranks have
// not started; after stall_abort_seconds, but not before 60 s, the ranks end with ExitCode::peer_lost.
class StartWatch {
 public:
  explicit StartWatch(const WatchdogOptions& options);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void run();

  const WatchdogOptions options_;
  const std::int64_t start_ns_ = now_ns();
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole
