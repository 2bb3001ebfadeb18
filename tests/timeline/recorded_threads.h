// A recorder of one rank, and threads that write to it concurrently.
#pragma once

#include <atomic>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

inline TimelineOptions options_in(const TemporaryFolder& folder, std::size_t bytes = 1 << 20) {
  return {.file = folder / "recorder/rank-0003.ftl",
          .recorder_bytes = bytes,
          .rank = 3,
          .world_size = 4,
          .host = "node1"};
}

inline std::size_t slot_of(const RecorderFile& file, const std::string& thread) {
  for (std::size_t i = 0; i < file.threads().size(); ++i)
    if (file.threads()[i].name == thread) return i;
  ADD_FAILURE() << "no thread " << thread;
  return 0;
}

// Runs threads that all live until each has done its work, so that no thread can take over another's ring.
template <typename Work>
void run_together(int count, Work work) {
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      work(i);
      ++done;
      done.notify_all();
      for (int now = done; now < count; now = done) done.wait(now);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace farandole
