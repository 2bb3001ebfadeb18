// Training on data that does not divide evenly: ranks that have run out of batches keep the others going.
// Used by the training thread.
//
//   {
//     farandole::Join join(session, {&optimizer});
//     for (const auto& batch : batches) { … }  // as many as this rank has
//   }  // waits until every rank is here
//
// A rank that has got to the end of the scope takes part in what the others still call: in the collectives of
// the session and of the groups with what changes nothing (comm/wrap/join_communicator.h), synchronised batch
// normalisation among them; in the reductions of the optimizers without gradients, and then in their steps,
// with the learning rates of those that go on. So parameters and the optimizers' state stay bit-wise the same
// on all ranks, and nothing is to be sent at the end but buffers, as the running statistics of batch
// normalisation: session.broadcast(*net, join.finish()).
//
// Averages, of gradients too, are those of the ranks that still have batches. all_gather() gets no rows of
// the others, reduce_scatter() and all_to_all() lose what goes to them, and broadcast from one of them is a
// UserError on all ranks. Optimizers that synchronize parameters average those of the ranks that have stepped
// since the last time, and once more at the end.
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
  // Collective over the job, between steps. Each rank gives the optimizers and groups that it uses until the
  // end, which outlive this; null groups are those of other ranks. Until then no optimizers, groups and
  // communicators can be made, and step() takes no closure.
  explicit Join(Session& session, std::vector<DistributedOptimizer*> optimizers = {},
                std::vector<Group*> groups = {}, JoinOptions options = {});
  // Calls finish() unless an exception is on its way: that rank's part stays undone, and the job has to end
  // with it, as run_session() sees to.
  ~Join() noexcept(false);
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // This rank has no more batches: returns when none has. The result is a rank that had batches to the end,
  // the same on all. Throws what a collective throws.
  int finish();

 private:
  Session& session_;
  const std::vector<DistributedOptimizer*> optimizers_;
  const std::vector<Group*> groups_;
  const int exceptions_at_start_;
  int last_ = -1;
};

}  // namespace farandole
