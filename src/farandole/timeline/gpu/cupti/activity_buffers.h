// The buffers that the driver fills with activity records, and the thread that reads them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cupti.h>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace farandole {

class ActivityBuffers {
 public:
  static constexpr std::size_t bytes = std::size_t{1} << 20;

  struct Filled {
    CUcontext context = nullptr;
    std::uint32_t stream = 0;
    std::uint8_t* buffer = nullptr;
    std::size_t valid = 0;
  };

  // `read` is called on a thread that gives way to those that train. `flush` makes the driver give
  // what it has.
  ActivityBuffers(std::function<void(const Filled&)> read, std::function<void()> flush);
  // Reads what was given.
  ~ActivityBuffers();
  ActivityBuffers(const ActivityBuffers&) = delete;
  ActivityBuffers& operator=(const ActivityBuffers&) = delete;

  // A buffer of `bytes` bytes; null if there is no memory left. The driver asks on the thread that launches
  // work, so buffers are used again: fresh memory would cost it page faults.
  std::uint8_t* take();
  void give(const Filled& filled);
  // The thread calls `flush` soon.
  void flush_soon();
  // Returns when all that was given is read.
  void wait();

 private:
  void run();
  void stock();
  bool is_idle() const { return filled_.empty() && !reading_ && !flush_; }

  const std::function<void(const Filled&)> read_;
  const std::function<void()> give_all_;
  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::vector<std::uint8_t*> free_;
  std::deque<Filled> filled_;
  bool flush_ = false, reading_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace farandole
