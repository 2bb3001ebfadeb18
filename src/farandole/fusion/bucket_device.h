// Where buckets are if they are not in memory of the host: on a device, whose streams write gradients and reduce them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "farandole/comm/communicator.h"

namespace farandole {

class BucketDevice {
 public:
  // A bucket that is to be reduced in place. `flags` are the last bytes of the bucket as the host has them.
  struct Reduction {
    std::size_t bucket = 0;
    std::string_view name;
    std::byte* data = nullptr;
    std::size_t count = 0;
    DType dtype{};
    ReduceOp op{};
    std::span<std::byte> flags;  // from allocate_flags()
  };

  virtual ~BucketDevice() = default;

  virtual Buffer allocate(std::size_t bytes) = 0;        // memory of the device
  virtual Buffer allocate_flags(std::size_t bytes) = 0;  // memory of the host
  // Queues zeros on the calling thread's current stream.
  virtual void zero(void* data, std::size_t bytes) = 0;
  // The calling thread has queued writes to the bucket on its current stream. start() lets the reduction wait for them.
  virtual void written(std::size_t bucket) = 0;
  // Queues the reduction and returns. Its result replaces the data and the flags.
  virtual void start(const Reduction& reduction) = 0;
  // Waits until the reduction that was started last for this bucket is complete.
  virtual void await(std::size_t bucket) = 0;
};

}  // namespace farandole
