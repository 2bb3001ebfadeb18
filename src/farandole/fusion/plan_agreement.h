// Checks at the start that all ranks reduce the same tensors.
// Thread safety: call from the training thread only.
#pragma once

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// Compares a hash of the plan on all ranks.
// Throws: UserError on every rank if a hash differs, with a table of the tensors that differ (name, dtype
// and shape by rank).
// Collective: every rank of the group must call this in the same order.
void check_plan_agreement(Communicator& communicator, const BucketPlan& plan);

}  // namespace farandole
