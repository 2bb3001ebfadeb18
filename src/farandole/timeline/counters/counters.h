// Records what the process uses - CPU, memory, files, network, GPU - as counters of the timeline, from a
// thread of its own. Created and destroyed by one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "farandole/timeline/timeline.h"

namespace farandole {

struct CounterOptions {
  std::chrono::milliseconds interval{1000};
  std::string gpu;  // as GpuCounters::open() takes it; "": none
};

// Once an interval and once at the end; what the system does not tell is left out. Over the time since the
// last sample: "CPU %" (100 = one core), "page faults/s", "major page faults/s", "context switches/s",
// "preemptions/s", "file read MB/s", "file write MB/s", "host network in MB/s" and "out" (ProcessCounters
// says what they are; MB are 10⁶ bytes). At the time: "memory MiB" (resident) and, where there is such a GPU,
// "GPU %", "GPU memory MiB", "GPU power W", "GPU temperature C".
class CounterSampler {
 public:
  // `timeline` outlives the sampler. Without a recorder no thread starts.
  explicit CounterSampler(Timeline& timeline, const CounterOptions& options = {});
  ~CounterSampler();  // takes the last sample and ends the thread, without waiting for the interval's end
  CounterSampler(const CounterSampler&) = delete;
  CounterSampler& operator=(const CounterSampler&) = delete;

 private:
  void run();

  Timeline& timeline_;
  const CounterOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace farandole
