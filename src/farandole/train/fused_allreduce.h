// Reduces many tensors as one: those of an element type travel in one buffer. Used by one thread at a time.
#pragma once

#include <map>
#include <torch/torch.h>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/scratch_buffer.h"

namespace farandole {

class FusedAllreduce {
 public:
  // results[i] = tensors[i] reduced over all ranks, bit-wise the same on each; `results` may be `tensors`.
  // One collective an element type, in the order in which the types first appear. Throws UserError, on all
  // ranks where these give other numbers of tensors, shapes, types or orders.
  void run(Communicator& communicator, const std::vector<torch::Tensor>& tensors,
           std::vector<torch::Tensor>& results, ReduceOp op);

 private:
  std::map<DType, ScratchBuffer> staging_;
};

}  // namespace farandole
