// Training on data that does not divide evenly: ranks that have run out of batches keep the others going.
// Thread safety: call from the training thread only.
//
//   {
//     farandole::Join join(session, {&optimizer});
//     for (const auto& batch : batches) { … }  // as many as this rank has
//   }  // waits until every rank is here
//
// A rank at the end of the scope takes part in what the others still call. In the collectives of the session
// and of the groups, synchronised batch normalisation among them, it gives values that change nothing: zeros
// in a sum, the least value in a maximum. In the reductions of the optimizers it takes part without gradients,
// and then steps as the others do, with their learning rates. So parameters and the optimizers' state stay
// bit-wise the same on all ranks. At the end only buffers must be sent, such as the running statistics of
// batch normalisation: session.broadcast(*net, join.finish()).
//
// Averages, of gradients too, are those of the ranks that still have batches. all_gather() gets no rows from
// the other ranks. What reduce_scatter() and all_to_all() send to them is lost. A broadcast from one of them is
// a UserError on all ranks. Optimizers that synchronize parameters average those of the ranks that have
// stepped since the last average, and once more at the end.
#pragma once

#include <vector>

#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/group.h"
#include "farandole/train/session.h"

namespace farandole {

struct JoinOptions {
  // Averages divide by the number of all ranks, so that each sample counts the same in every step.
  bool divide_by_all = false;
};

class Join {
 public:
  // Between steps. Each rank gives the optimizers and groups that it uses until the end of the scope; they
  // outlive this. Null groups are those of other ranks. Inside the scope no optimizers and groups can be made,
  // and step() takes no closure.
  // Collective: every rank of the group must call this in the same order.
  explicit Join(Session& session, std::vector<DistributedOptimizer*> optimizers = {},
                std::vector<Group*> groups = {}, JoinOptions options = {});
  // Calls finish() unless an exception is on its way. In that case this rank's part stays undone, and the job
  // has to end with it, as run_session() sees to.
  ~Join() noexcept(false);
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Call it when this rank has no more batches; it returns when no rank has any. The result is a rank that had
  // batches to the end, the same on all ranks.
  // Throws: what a collective throws.
  int finish();

 private:
  Session& session_;
  const std::vector<DistributedOptimizer*> optimizers_;
  const std::vector<Group*> groups_;
  const int exceptions_at_start_;
  int last_ = -1;
};

}  // namespace farandole
