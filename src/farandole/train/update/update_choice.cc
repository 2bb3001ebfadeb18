#include "farandole/train/update/update_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <malloc.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/comm/agreement.h"
#include "farandole/train/replicas/replica_hashes.h"
#include "farandole/train/update/divided_update.h"
#include "farandole/train/update/node_update.h"

namespace farandole {
namespace {

// Each rank has all parameters and the state of all of them, and updates all of a bucket.
class WholeUpdate final : public ParameterUpdate {
 public:
  WholeUpdate(OptimizerRules& rules, const BucketPlan& plan, std::vector<torch::Tensor> gradients,
              std::string why_not)
      : ParameterUpdate({rules, plan, FlatBuckets::whole(rules, plan, std::move(gradients))}),
        why_not_(std::move(why_not)) {
    flat_.move_all_into_place();
  }
  Sharding sharding() const override { return {false, why_not_}; }

 private:
  const std::string why_not_;
};

}  // namespace

UpdateChoice::UpdateChoice(const DistributedOptimizerOptions& options, OptimizerRules& rules,
                           GradientSynchronizer& gradients, const NamedParameters& named,
                           const UpdateFacts& facts)
    : options_(options),
      rules_(rules),
      gradients_(gradients),
      named_(named),
      needs_all_(facts.needs_all),
      why_not_(options.shard == Shard::off ? "sharding is off" : find_reason(facts)) {
  if (options.shard == Shard::required && !why_not_.empty())
    throw UserError(fmt::format(
        "parameters and optimizer state cannot be divided by the ranks of a node: {}; use shard auto",
        why_not_));
  if (!why_not_.empty()) return;
  divides_ = gradients_.device() != nullptr;
  if (!divides_) sharing_ = gradients_.ranks().node_sharing();
  may_share_ = sharing_ != nullptr;
}

std::string UpdateChoice::find_reason(const UpdateFacts& facts) const {
  const auto has_other_type = [](const torch::Tensor& tensor) {
    return tensor.scalar_type() != torch::kFloat32 && tensor.scalar_type() != torch::kFloat64;
  };
  const auto* const device = gradients_.device();
  const auto& dense = rules_.parameters();
  if (options_.synchronization.of_parameters()) return "the ranks average parameters";
  if (gradients_.ranks().size == 1) return "there is one rank";
  if (device != nullptr && options_.shard != Shard::required)
    return "the ranks compute on GPUs, where shard must be on";
  if (device != nullptr && !device->can_gather()) return "ranks share GPUs";
  if (!options_.sparse_parameters.empty()) return "there are sparse gradients";
  if (options_.compression.of_ranks()) return "gradients are compressed";
  if (!rules_.are_fused()) return "the optimizer is not SGD, Adam, AdamW or RMSprop";
  if (facts.shares_parameters) return "another optimizer has the same parameters";
  if (dense.empty() || std::ranges::any_of(dense, has_other_type))
    return "there are parameters of other types than float32 and float64";
  if (device == nullptr && gradients_.ranks().node_sharing() == nullptr)
    return "no ranks on the same node share memory";
  return {};
}

std::unique_ptr<ParameterUpdate> UpdateChoice::make(const BucketPlan& plan,
                                                    std::unique_ptr<ParameterUpdate> former,
                                                    bool has_stepped) {
  if (divides_) {
    gradients_.use(plan, nullptr, Divided::yes);
    return std::make_unique<DividedUpdate>(rules_, *gradients_.device(), gradients_.plan(), gradients_.flat(),
                                           static_cast<DividedUpdate*>(former.get()));
  }
  if (shares_ && !former->sharding().divided) share_no_more(former->sharding().why_not);
  former.reset();
  may_share_ = may_share_ && all_still_share();
  shares_ = may_share_ && have_same_parameters();
  if (!shares_ && has_stepped) share_no_more("the ranks have different parameters");
  may_share_ = sharing_ != nullptr;
  // One kernel reduces and updates a bucket if nothing else must be known about all gradients before.
  reduces_ = shares_ && sharing_->is_whole() && !needs_all_;
  gradients_.use(plan, reduces_ ? sharing_ : nullptr);
  if (shares_)
    if (auto update = share()) return update;
  shares_ = false;
  if (std::exchange(reduces_, false)) gradients_.use(plan);
  return std::make_unique<WholeUpdate>(rules_, gradients_.plan(), gradients_.flat(), why_not_);
}

bool UpdateChoice::wants_another(const ParameterUpdate& update, bool has_stepped) const {
  if (!shares_) return sharing_ != nullptr && has_stepped;
  return reduces_ && update.needs() != ParameterUpdate::Needs::buckets_of_ranks;
}

void UpdateChoice::share_no_more(const std::string& why) {
  if (std::exchange(sharing_, nullptr) != nullptr) why_not_ = why;
}

// A node decides for itself to stop. In new buckets, all nodes do the same.
bool UpdateChoice::all_still_share() {
  int stopped = sharing_ == nullptr ? 1 : 0;
  gradients_.ranks().allreduce("shared parameters", &stopped, 1, DType::int32, ReduceOp::max);
  if (stopped != 0) share_no_more("another node has stopped sharing them");
  return stopped == 0;
}

// Ranks that begin with different parameters are refused in the first step. They do not share them before.
bool UpdateChoice::have_same_parameters() {
  return find_disagreements(gradients_.ranks(), "parameters to share", hashes_of(named_)).empty();
}

// Returns nullptr if the ranks of some node cannot share memory.
std::unique_ptr<ParameterUpdate> UpdateChoice::share() {
  std::unique_ptr<ParameterUpdate> update;
  std::string reason;
  try {
    update = std::make_unique<NodeUpdate>(
        rules_, gradients_.plan(), gradients_.flat(), *sharing_,
        NodeOptions{.reduces = reduces_, .required = options_.shard == Shard::required});
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::failure) throw;
    reason = error.what();
  }
  int failed = reason.empty() ? 0 : 1;
  gradients_.ranks().allreduce("shared parameters", &failed, 1, DType::int32, ReduceOp::max);
  if (failed == 0) {
    ::malloc_trim(0);  // Returns the former memory of the parameters to the system.
    return update;
  }
  const bool speaks = sharing_->node_rank() == 0;
  may_share_ = false;
  share_no_more(reason.empty() ? "another node has no memory that its ranks can share" : reason);
  if (options_.shard == Shard::required) throw Error(why_not_);
  if (speaks)
    log_warning("parameters and optimizer state are not divided by the ranks of a node: {}", why_not_);
  return nullptr;
}

}  // namespace farandole
