// Checks at the start that all ranks reduce the same tensors, and have the same of anything else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// A line that is not the same on all ranks.
struct Disagreement {
  struct Variant {
    std::string text;
    std::vector<int> ranks;
  };
  std::size_t line = 0;
  std::vector<Variant> variants;
};

// Compares a text on all ranks, line by line. Equal texts need one small message. `what` names the messages.
// Collective: every rank of the group must call this in the same order.
std::vector<Disagreement> find_disagreements(Communicator& communicator, std::string_view what,
                                             const std::string& text);

// Compares a hash of the plan on all ranks.
// Throws: UserError on every rank if a hash differs, with a table of the tensors that differ (name, dtype
// and shape by rank).
// Collective: every rank of the group must call this in the same order.
void check_plan_agreement(Communicator& communicator, const BucketPlan& plan);

}  // namespace farandole
