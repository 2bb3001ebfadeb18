// What a reducer of farandole/capi.h stands for.
// Thread safety: none; use from one thread at a time. Functions say where this is not so.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/reduce_op.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/fusion/bucket_planner.h"
#include "farandole/fusion/host_reducer.h"
#include "farandole/job/job.h"

namespace farandole::capi {

class ReducerHandle {
 public:
  struct Options {
    ReduceOp op = ReduceOp::average;
    std::optional<DType> compressed;  // float16 or bfloat16
    BucketOptions sizes;
  };
  // `job` must outlive this object.
  // Throws: UserError on all ranks if tensors or options differ.
  // Collective: every rank of the communicator must call this in the same order.
  ReducerHandle(Job& job, std::unique_ptr<TracedCommunicator> ranks, const std::vector<TensorSpec>& tensors,
                const Options& options);

  // Thread safety: any thread may call this at any time.
  HostReducer& reducer() { return *reducer_; }
  // Plans the buckets anew. Returns whether gradients have other places from now on.
  // Collective: every rank of the communicator must call this in the same order.
  bool replan();
  // Takes part in the steps of the other ranks without gradients, until every rank does so.
  // Returns their number.
  std::int64_t join();

 private:
  void use_planned_buckets();

  Job& job_;
  const std::unique_ptr<TracedCommunicator> ranks_;
  const Options options_;
  BucketPlanner planner_;
  std::atomic<bool> has_steps_{true};  // The flag for stops says whether any rank has.
  std::unique_ptr<HostReducer> reducer_;
  CollectiveRegistry::Explanation explanation_;  // uses the reducer, so it is destroyed first
};

}  // namespace farandole::capi
