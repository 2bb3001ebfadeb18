// Copies memory of a device into pinned memory of the host, on a stream of its own, while
// other streams compute.
// Thread safety: call from the training thread only. Classes say where other threads may use them.
//
// The pinned memory has room for all pieces, although the host copies them once more from there. With
// less, the device would have to wait until the processor has emptied it, and the next update of the
// parameters waits for the device. To pin 1.5 GB takes 0.8 s, in which no thread can launch work, so it is
// taken in small chunks.
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

  // Takes pinned memory for pieces of this size together, on a thread that gives way to those that train,
  // while `device` computes. Only the first call before the first start() has an effect.
  void prepare(std::size_t bytes, int device);
  // Queues the copies of the pieces, behind the work that is queued on `writer` so far. The pinned memory is
  // that of the copies before. If they still exist, this waits until another thread destroys them.
  // What prepare() has not taken yet is taken now.
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
  // Writes piece `index` to `to`. Call this after wait().
  void read(std::size_t index, std::byte* to) const;

 private:
  friend class GpuStaging;
  // Calls visit(memory, offset in the piece, bytes) for each part of a piece that is contiguous.
  template <class Visit>
  void visit_parts(std::size_t index, Visit visit) const;

  const std::shared_ptr<Memory> memory_;
  std::vector<std::size_t> offsets_, bytes_;  // of the pieces
};

}  // namespace farandole
