// Where buckets are if they are not in memory of the host: on a device, whose streams write gradients and reduce them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/reduce_op.h"

namespace farandole {

// A bucket in memory of the device. Its reductions alternate between two turns, so that the host can prepare one while the
// device is still at the one before. "Current stream" is that of the calling thread. Only await() waits.
class DeviceBucket {
 public:
  struct Gradient {  // that lies elsewhere on the device
    const std::byte* from;
    std::byte* to;  // in the bucket
    std::size_t bytes;
  };

  // Waits for its last reductions, and for all work of the device that may use the memory.
  virtual ~DeviceBucket() = default;

  virtual std::byte* data() = 0;
  // The last bytes of the bucket, as the host gives them to the reduction of a turn and gets them back. They may be used
  // when the last reduction of this turn has been awaited.
  virtual std::byte* flags(int turn) = 0;
  // Queues zeros on the current stream.
  virtual void zero(std::byte* at, std::size_t bytes) = 0;
  // The thread has queued writes of gradients on its current stream. start() lets the reduction wait for them.
  virtual void written() = 0;
  // Queues the copies of `gradients`, with at most one launch, and the reduction of the bucket, whose elements are
  // multiplied by `factor` before.
  virtual void start(int turn, std::string_view name, std::span<const Gradient> gradients, double factor) = 0;
  // Lets work that is queued on the current stream from now on wait for the reduction that was started last.
  virtual void hold() = 0;
  // Waits for the last reduction of this turn. Returns its first element that is not finite, without flags, if the device
  // looks for them.
  virtual std::optional<std::size_t> await(int turn) = 0;
  // In memory of the device, for work that hold() has held back: 1 if this or an earlier reduction of any bucket had an
  // element that is not finite, else 0. Null if the device does not look for them.
  virtual float* found_nonfinite() = 0;
};

class BucketDevice {
 public:
  virtual ~BucketDevice() = default;
  virtual std::unique_ptr<DeviceBucket> make(const Bucket& bucket, ReduceOp op) = 0;
  // Sets found_nonfinite() of the reductions that are started from now on back to 0.
  virtual void forget_nonfinite() = 0;
};

}  // namespace farandole
