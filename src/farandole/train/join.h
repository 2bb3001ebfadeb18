// Trains on data that does not divide evenly: ranks without batches take part in the
// collectives of the others.
// Thread safety: call from the training thread only.
//
//   {
//     farandole::Join join(session, {&optimizer});
//     for (const auto& batch : batches) { … }  // as many as this rank has
//   }  // waits until every rank is here
//
// A rank at the end of the scope takes part in the calls of the others: in the collectives of the session
// and of the groups, including synchronized batch normalization, with values that do not change the
// result; and in the reductions and steps of the optimizers, without gradients and with the learning rates of
// the active ranks. Therefore parameters and optimizer state stay bit-wise equal on all ranks. At the end
// only buffers, such as the running statistics of batch normalization, must be sent:
// session.broadcast(*net, join.finish()).
//
// Averages, also of gradients, are those of the ranks that still have batches. all_gather() gets no rows from
// the other ranks. reduce_scatter() and all_to_all() lose rows that are sent to them. A broadcast from one of
// them is a UserError on all ranks. Optimizers that synchronize parameters average those of the ranks that
// have stepped since the last average, and once more at the end.
#pragma once

#include <vector>

#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/group.h"
#include "farandole/train/session.h"

namespace farandole {

struct JoinOptions {
  // Averages divide by the number of all ranks, so that each sample has the same weight in every step.
  bool divide_by_all = false;
};

class Join {
 public:
  // Call this between steps. Each rank passes the optimizers and groups that it uses until the end; they must
  // outlive this object. A null group belongs to other ranks. Until the end no optimizers, groups and
  // communicators can be created, and step() cannot take a closure.
  // Collective: every rank of the job must call this in the same order.
  explicit Join(Session& session, std::vector<DistributedOptimizer*> optimizers = {},
                std::vector<Group*> groups = {}, JoinOptions options = {});
  // Calls finish(), except during stack unwinding. Then this rank does not take part any more, and the job
  // must end, as in run_session().
  ~Join() noexcept(false);
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // This rank has no more batches. Returns when no rank has batches. The result is a rank that had batches
  // until the end; it is the same on all ranks.
  // Throws: the errors of collectives.
  int finish();

 private:
  Session& session_;
  const std::vector<DistributedOptimizer*> optimizers_;
  const std::vector<Group*> groups_;
  const int exceptions_at_start_;
  int last_ = -1;
};

}  // namespace farandole
