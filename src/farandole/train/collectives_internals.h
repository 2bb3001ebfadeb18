// The members of TensorCollectives, and its reduction of many tensors. The installed headers do not
// include this header.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <torch/types.h>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/wrap/join_communicator.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/train/tensor_collectives.h"

namespace farandole {

// Reduces many tensors together: all tensors of an element type use one buffer.
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

struct TensorCollectives::Internals {
  // Nullptr: collectives cannot be called until the next call of use().
  explicit Internals(std::unique_ptr<TracedCommunicator> traced = {})
      : own(traced == nullptr ? nullptr : std::make_unique<JoinCommunicator>(std::move(traced))),
        communicator(own.get()) {}

  // Another communicator, which must live until the next call; as above.
  void use(JoinCommunicator* ranks) {
    fused = {};
    communicator = ranks;
  }
  bool joining() const { return communicator != nullptr && communicator->joining(); }

  const std::unique_ptr<JoinCommunicator> own;  // Null if it is the job's.
  JoinCommunicator* communicator;
  FusedAllreduce fused;  // Has memory of the communicator.
};

inline Communicator& communicator_of(TensorCollectives& ranks) {
  return *ranks.internals().communicator;
}

}  // namespace farandole
