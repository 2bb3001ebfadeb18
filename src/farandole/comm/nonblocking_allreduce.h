// An allreduce in two halves, for a thread that has other work between them. One at a time; used by the
// thread that uses the communicator.
#pragma once

#include <cstddef>
#include <string_view>

#include "farandole/comm/communicator.h"

namespace farandole {

class NonblockingAllreduce {
 public:
  enum class Progress {
    none,  // others are missing
    some,  // this rank has done its part
    done,
  };
  virtual ~NonblockingAllreduce() = default;

  // As Communicator::allreduce, but returns at once; `data` belongs to the operation until it is done, and no
  // other collective of the communicator may be called.
  virtual void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) = 0;
  // Does this rank's part of the work as far as it need not wait for others.
  virtual Progress test() = 0;
  // Waits until it is done.
  virtual void wait() = 0;
};

}  // namespace farandole
