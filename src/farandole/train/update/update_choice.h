// Chooses how a rank updates parameters, and makes the update for the buckets of a plan. This is the only
// place that knows all kinds of updates.
// Thread safety: call from the training thread only.
#pragma once

#include <memory>
#include <string>
#include <torch/ordered_dict.h>
#include <torch/types.h>

#include "farandole/comm/node_sharing.h"
#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/gradients/gradient_synchronizer.h"
#include "farandole/train/update/optimizer_rules.h"
#include "farandole/train/update/parameter_update.h"

namespace farandole {

// What decides beside the options; the same on all ranks.
struct UpdateFacts {
  bool needs_all = false;          // All gradients must be reduced before the first update.
  bool shares_parameters = false;  // With another DistributedOptimizer of this process.
};

class UpdateChoice {
 public:
  using NamedParameters = torch::OrderedDict<std::string, torch::Tensor>;

  // All references must outlive this object.
  // Throws: UserError if the options require sharding, with the reason for which there is none.
  UpdateChoice(const DistributedOptimizerOptions& options, OptimizerRules& rules,
               GradientSynchronizer& gradients, const NamedParameters& named, const UpdateFacts& facts);

  // Moves gradients to the buckets of the plan, too. `former`: the update until now, or null. `has_stepped`:
  // the ranks have compared their parameters.
  // Throws: Error if ranks cannot share memory, but the options require it.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<ParameterUpdate> make(const BucketPlan& plan, std::unique_ptr<ParameterUpdate> former,
                                        bool has_stepped);
  // Whether make() must be called before the next step, also without another plan.
  bool wants_another(const ParameterUpdate& update, bool has_stepped) const;
  // Other buckets than the present ones are not wanted any more.
  void keep_buckets() { reduces_ = false; }

 private:
  std::string find_reason(const UpdateFacts& facts) const;
  bool all_still_share();
  bool have_same_parameters();
  void share_no_more(const std::string& why);
  std::unique_ptr<ParameterUpdate> share();

  const DistributedOptimizerOptions& options_;
  OptimizerRules& rules_;
  GradientSynchronizer& gradients_;
  const NamedParameters& named_;
  const bool needs_all_;
  bool divides_ = false;  // On GPUs, each rank has its part of the state.
  // Set if the ranks of a node share parameters, or will after the first step.
  NodeSharing* sharing_ = nullptr;
  bool may_share_ = false;  // The same on all ranks: no node had stopped at the last make().
  bool shares_ = false;     // The last make() has made a NodeUpdate.
  bool reduces_ = false;    // And it was to reduce gradients, too.
  std::string why_not_;     // Neither of these.
};

}  // namespace farandole
