// Reduces many tensors together: all tensors of an element type use one buffer.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <map>
#include <torch/types.h>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"

namespace farandole {

class FusedAllreduce {
 public:
  // Sets results[i] to tensors[i] reduced over all ranks, bit-wise the same on each rank. `results` may be
  // `tensors`. There is one collective per element type, in the order in which the types first appear.
  // Throws: UserError on all ranks if the ranks pass different numbers, shapes, types or orders of tensors.
  // Collective: every rank of the group must call this in the same order.
  void run(Communicator& communicator, const std::vector<torch::Tensor>& tensors,
           std::vector<torch::Tensor>& results, ReduceOp op);

 private:
  std::map<DType, ScratchBuffer> staging_;
};

}  // namespace farandole
