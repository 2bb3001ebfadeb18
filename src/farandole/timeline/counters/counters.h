// Records the resources that the process uses (CPU, memory, files, network, GPU) as counters of the timeline.
// A helper thread takes the samples.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "farandole/timeline/timeline.h"

namespace farandole {

struct CounterOptions {
  std::chrono::milliseconds interval{1000};
  std::string gpu;              // as for GpuCounters::open(); "" means none
  bool of_main_thread = false;  // "core" and "core wait %" are those of the main thread
};

// Takes a sample once per interval and once at the end. Values that the system does not provide are left out.
// Rates since the last sample: "CPU %" (100 = one core), "page faults/s", "major page faults/s", "context
// switches/s", "preemptions/s", "file read MB/s", "file write MB/s", "host network in MB/s" and "out".
// ProcessCounters explains them, and MB are 10⁶ bytes. Current values: "memory MiB" (resident) and, if the
// GPU can be read, "GPU %", "GPU memory MiB", "GPU power W" and "GPU temperature C".
// Of the thread that creates the sampler, or of the main one: "core wait %", the part of the time in which it
// could run but no core was free for it, and "core", its number. At the end, the instant "idle cores 2-7"
// names the cores of the allocation that nothing has used meanwhile.
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
  const int training_tid_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

// Resources that this process and its host's network have used since they started, as the system counts them.
// Thread safety: any thread may call this at any time.
struct ProcessCounters {
  std::int64_t cpu_ns = 0;  // of all threads, including those of libraries
  std::int64_t page_faults = 0;
  std::int64_t major_page_faults = 0;  // page faults that waited for a disk
  std::int64_t context_switches = 0;   // switches because a thread waited
  std::int64_t preemptions = 0;        // switches to another thread or process that was due to run
  // From and to storage, without the page cache.
  std::optional<std::int64_t> file_read_bytes, file_written_bytes;
  // Of the whole host with all its processes: all network interfaces except loopback, and InfiniBand ports.
  std::optional<std::int64_t> network_received_bytes, network_sent_bytes;

  static ProcessCounters read();
};

std::optional<double> resident_mib();

}  // namespace farandole
