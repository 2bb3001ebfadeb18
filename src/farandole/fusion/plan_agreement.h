// Start-up check that all ranks reduce the same tensors. A collective operation.
#pragma once

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// Compares a hash of the plan on all ranks; where one differs, throws UserError on every rank with a table of
// the tensors that differ: name, dtype and shape by rank.
void check_plan_agreement(Communicator& communicator, const BucketPlan& plan);

}  // namespace farandole
