// Copies memory of a device into pinned memory of the host, on a stream of its own, while
// other streams compute.
// Thread safety: call from the training thread only. Classes say where other threads may use them.
//
// The pinned memory has room for all pieces, although the host copies them once more from there. With less,
// the device would have to wait until the processor has emptied it, and the next update of the parameters
// waits for the device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "farandole/comm/gpu/gpu_runtime.h"

namespace farandole {

class GpuStaging {
 public:
  struct Piece {
    const void* from;
    std::size_t bytes;
  };
  class Copies;

  explicit GpuStaging(std::shared_ptr<const GpuRuntime> runtime);
  ~GpuStaging();

  // Queues the copies of the pieces, behind the work that is queued on `writer` so far. The pinned memory is
  // that of the copies before. If they still exist, this waits until another thread destroys them.
  std::shared_ptr<const Copies> start(std::span<const Piece> pieces, CUstream_st* writer);
  // Lets work that is queued on `writer` from now on wait until the device has read the pieces of the last
  // start(). Only the first call after a start() has an effect.
  void hold(CUstream_st* writer);

 private:
  struct Memory;
  const std::shared_ptr<Memory> memory_;
  bool to_hold_ = false;
};

// The pieces on the host. Its destructor waits for the device and gives the memory back.
// Thread safety: any thread may call this at any time.
class GpuStaging::Copies {
 public:
  Copies(std::shared_ptr<Memory> memory, std::span<const Piece> pieces);
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Waits until the device has written all pieces.
  // Throws: Error if the device has failed.
  void wait() const;
  // Valid after wait().
  std::span<const std::byte> piece(std::size_t index) const;

 private:
  const std::shared_ptr<Memory> memory_;
  std::vector<std::size_t> offsets_, bytes_;  // of the pieces
};

}  // namespace farandole
