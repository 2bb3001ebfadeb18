// Updates parameters and state that the ranks of a node share. Each rank updates its part of each bucket.
// Thread safety: call from the training thread only.
//
// Parameters are views (NodeBlocks::views()), so that what users write to them is seen by no other rank.
// Before an update the ranks find such changes. If all ranks have made the same ones, they become those of
// the node. Otherwise, or if a program changes parameters in each step, the ranks stop sharing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/comm/node_sharing.h"
#include "farandole/train/update/parameter_update.h"

namespace farandole {

struct NodeOptions {
  bool reduces = false;   // update() also reduces: it takes the unreduced buckets of all ranks.
  bool required = false;  // Changes that end the sharing are refused.
};

class NodeUpdate final : public ParameterUpdate {
 public:
  // `gradients` are indexed by bucket. A fused kernel must be able to update all parameters. The values of
  // node rank 0 are kept. `rules` and `sharing` must outlive this object.
  // Throws: as NodeSharing::map().
  // Collective: every rank of the node must call this in the same order.
  NodeUpdate(OptimizerRules& rules, const BucketPlan& plan, std::vector<torch::Tensor> gradients,
             NodeSharing& sharing, const NodeOptions& options);

  Needs needs() const override;
  // Throws: UserError if the ranks must stop sharing, but sharing is required.
  void begin() override;
  void end() override;
  Sharding sharding() const override;
  void stop_sharing(const std::string& why, bool meet) override;

 private:
  struct Mapped;
  static Mapped map_parameters(OptimizerRules& rules, const BucketPlan& plan,
                               std::vector<torch::Tensor> gradients, NodeSharing& sharing);
  NodeUpdate(OptimizerRules& rules, const BucketPlan& plan, Mapped mapped, NodeSharing& sharing,
             const NodeOptions& options);
  void share_state();
  void move_all_into_place();
  bool any_has_changes();
  std::optional<std::size_t> find_difference();
  void adopt_changes();
  std::span<std::uint64_t> notes_of(int node_rank) const;

  NodeSharing& sharing_;
  const NodeOptions options_;
  // Of the parameters, and of each field of the state; empty: they are not shared any more.
  std::vector<std::shared_ptr<NodeBlocks>> shared_;
  std::shared_ptr<NodeBlocks> notes_;  // See notes_of().
  std::vector<bool> has_state_;        // Its memory has been used; indexed by tensor.
  std::size_t turns_ = 0;              // Number of calls of any_has_changes().
  int steps_with_changes_ = 0;         // In a row.
  bool meets_ = false;                 // In end().
  std::string why_not_;                // They are not shared any more.
};

}  // namespace farandole
