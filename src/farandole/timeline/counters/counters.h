// Records the resources that the process uses (CPU, memory, files, network, GPU) as counters of the timeline.
// A helper thread takes the samples.
// Thread safety: create and destroy this object from one thread.
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
  std::string gpu;  // as for GpuCounters::open(); "" means none
};

// Takes a sample once per interval and once at the end. Values that the system does not provide are left out.
// Rates since the last sample: "CPU %" (100 = one core), "page faults/s", "major page faults/s", "context
// switches/s", "preemptions/s", "file read MB/s", "file write MB/s", "host network in MB/s" and "out".
// ProcessCounters explains them, and MB are 10⁶ bytes. Current values: "memory MiB" (resident) and, if the
// GPU can be read, "GPU %", "GPU memory MiB", "GPU power W" and "GPU temperature C".
class CounterSampler {
 public:
  // `timeline` must outlive the sampler. No thread starts if the timeline records nothing.
  explicit CounterSampler(Timeline& timeline, const CounterOptions& options = {});
  ~CounterSampler();  // takes the last sample immediately and ends the thread
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
