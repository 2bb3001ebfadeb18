// Buckets in memory of a GPU, reduced on a stream of their own while other streams write
// gradients and compute.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/gpu/device_communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/reduce_op.h"

namespace farandole {

// A bucket in memory of the device. Reductions use two sets of flags in turn. The host prepares one while the
// device still uses the other. "Current stream" is that of the calling thread. Only await() waits; start()
// may wait until all ranks have come to the first reduction.
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
  // The last bytes of the bucket, as the host gives them to the reduction with a set and gets them back. They
  // may be used when the last reduction with this set has been awaited.
  virtual std::byte* flags(int set) = 0;
  // Queues zeros on the current stream.
  virtual void zero(std::byte* at, std::size_t bytes) = 0;
  // The thread has queued writes of gradients on its current stream. start() lets the reduction
  // wait for them.
  virtual void written() = 0;
  // Queues the copies of `gradients`, with at most one launch, and the reduction of the bucket, whose
  // elements are multiplied by `factor` before.
  virtual void start(int set, std::string_view name, std::span<const Gradient> gradients, double factor) = 0;
  // Lets work that is queued on the current stream from now on wait for the reduction that was started last.
  virtual void hold() = 0;
  // Waits for the last reduction with this set. Returns its first non-finite element, or nothing if the
  // device does not check. Flags are not checked.
  virtual std::optional<std::size_t> await(int set) = 0;
  // Points to device memory for work that runs after hold(). It is 1 if this or an earlier reduction of any
  // bucket had a non-finite element, otherwise 0. Null if the device does not check.
  virtual float* found_nonfinite() = 0;
};

// Whether a reduction leaves each rank only its part of the sums.
enum class Divided : bool { no, yes };

class BucketDevice {
 public:
  virtual ~BucketDevice() = default;
  // Divided buckets need several ranks.
  virtual std::unique_ptr<DeviceBucket> make(const Bucket& bucket, ReduceOp op, Divided divided) = 0;

  // The ranks, which divide an array of `count` elements into parts of equal length. These begin at multiples
  // of 64 bytes, so the last ones may end behind the array.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether gather() can be used for all memory of the device.
  virtual bool can_gather() const = 0;
  std::size_t part_of(std::size_t count, std::size_t element_bytes) const {
    const auto whole = static_cast<std::size_t>(size()) * (64 / element_bytes);
    return (count + whole - 1) / whole * (64 / element_bytes);
  }
  // The elements [first, last) of the payload in this rank's part.
  std::pair<std::size_t, std::size_t> own_part(const Bucket& bucket) const {
    const auto part = part_of(bucket.payload, size_of(bucket.dtype));
    const auto first = std::min(part * static_cast<std::size_t>(rank()), bucket.payload);
    return {first, std::min(first + part, bucket.payload)};
  }

  // Each rank has its part of `memory`, of `part_bytes`, and gets those of the others. This waits for what is
  // queued on the current stream. What is queued there after hold() waits for it.
  // Collective: every rank must call this in the same order, also relative to DeviceBucket::start().
  virtual void gather(std::string_view name, void* memory, std::size_t part_bytes) = 0;
  // A number in memory of the device. sum_over_ranks() adds it over the ranks, in order with
  // the current stream.
  // Collective: as gather().
  virtual double* number() = 0;
  virtual void sum_over_ranks(std::string_view name) = 0;
  // Lets work that is queued on the current stream from now on wait for all that was started here.
  virtual void hold() = 0;
  // Resets found_nonfinite() to 0 for the reductions that start after this call.
  virtual void forget_nonfinite() = 0;
};

// The GPU of a rank and what computes on it.
struct GpuOfRank {
  std::shared_ptr<const GpuRuntime> runtime;
  int device = 0;
  std::function<CUstream_st*()> current_stream;  // of the calling thread
  // Other ranks may use it, too. Then buckets are reduced through CUDA IPC, otherwise by NCCL.
  bool shared = false;
};

enum class FindNonfinite : bool { no, yes };

// `bootstrap` must outlive the last make().
// Throws: as the constructors of NcclCommunicator, IpcCommunicator and GpuKernels.
// Collective: every rank of `bootstrap` must call this in the same order.
std::unique_ptr<BucketDevice> make_gpu_buckets(Communicator& bootstrap, const GpuOfRank& gpu,
                                               DeviceCommunicatorOptions options,
                                               FindNonfinite find_nonfinite);

}  // namespace farandole
