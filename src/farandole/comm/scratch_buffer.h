// A communicator's memory that is kept from call to call, because fresh memory costs page faults.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>

#include "farandole/comm/communicator.h"

namespace farandole {

class ScratchBuffer {
 public:
  // Returns at least `bytes` bytes, valid until the next call. Their contents are lost if the buffer grows.
  // Ranks that request the same sizes grow in the same calls.
  // Throws: as Communicator::allocate().
  std::byte* get(Communicator& communicator, std::size_t bytes) {
    if (bytes > bytes_) {
      const auto grown = std::max(bytes, bytes_ + bytes_ / 2);
      memory_.reset();  // before the larger allocation, which may need this memory
      bytes_ = 0;
      memory_ = communicator.allocate(grown);
      bytes_ = grown;
    }
    return memory_.get();
  }

 private:
  Buffer memory_;
  std::size_t bytes_ = 0;
};

}  // namespace farandole
