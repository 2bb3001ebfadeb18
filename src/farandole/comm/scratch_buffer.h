// A communicator's memory kept from call to call, because fresh memory costs page faults. Used by one thread
// at a time.
#pragma once

#include <algorithm>
#include <cstddef>

#include "farandole/comm/communicator.h"

namespace farandole {

class ScratchBuffer {
 public:
  // At least `bytes`, until the next call; what they hold is lost where it grows. Ranks that ask for the same
  // bytes grow in the same calls. Throws what Communicator::allocate does.
  std::byte* get(Communicator& communicator, std::size_t bytes) {
    if (bytes > bytes_) {
      const auto grown = std::max(bytes, bytes_ + bytes_ / 2);
      memory_.reset();  // before the larger one, which may need its memory
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
