// Updates the parameters of whole buckets.
// Thread safety: call from the training thread only.
//
// Parameters, and the state that SGD, Adam, AdamW and RMSprop keep for them, have the same layout as the
// gradients: one flat tensor per bucket. The parameters and the tensors in torch::optim's state are views of
// it. One call of a fused kernel updates a bucket, or a run of its slots if slots differ in options or number
// of updates, or have no gradient. torch::optim still owns options, counters and state: users, broadcasts and
// checkpoints read valid values there, and values that they replace are used in the next update.
//
// If the ranks of a node share this memory, each rank updates only its part of each bucket. Parameters
// are views (NodeBlocks::views()), so that what users write to them is seen by no other rank. Before an
// update the ranks find such changes (prepare()). If all ranks have made the same ones, they become those
// of the node.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <variant>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/kernels/update.h"
#include "farandole/comm/node_sharing.h"
#include "farandole/train/replica_hashes.h"

namespace farandole {

// What gradients are multiplied by: a number, or a scalar of float64 that only the device knows.
using GradientFactor = std::variant<double, torch::Tensor>;
void multiply(torch::Tensor& gradients, const GradientFactor& factor);

// Gives the parameter the memory of `place`, with its own values, unless it has it. Modules replace the
// memory of a parameter when they are loaded or converted.
void move_into_place(const torch::Tensor& parameter, const torch::Tensor& place);

// Whether fused kernels have the rule of this optimizer.
bool has_fused_update(torch::optim::Optimizer& optimizer);

class FusedRule;
struct FlatRun;
struct HostGradients;
using StateFields = std::array<torch::Tensor, update_fields>;  // undefined where a rule has no such field

class BucketOptimizer {
 public:
  // `parameters` are in the order of the plan's tensors. `gradients` are indexed by bucket and have its
  // layout. `optimizer` and `plan` must outlive this object. When it is destroyed, the parameters keep their
  // values and the flat memory.
  // With `sharing`, which must outlive this object, the ranks of the node share parameters and state; those
  // of local rank 0 are kept. A fused kernel must be able to update all parameters.
  // Without `flat_parameters`, which are indexed by bucket, the parameters get new memory.
  // Throws: with `sharing`, as NodeSharing::map().
  // Collective: with `sharing`, every rank of the node must call this in the same order.
  BucketOptimizer(torch::optim::Optimizer& optimizer, const BucketPlan& plan,
                  std::vector<torch::Tensor> parameters, std::vector<torch::Tensor> gradients,
                  NodeSharing* sharing = nullptr, std::vector<torch::Tensor> flat_parameters = {});
  ~BucketOptimizer();

  // Multiplies all gradients of the bucket by `factor`. Then updates the parameters of the bucket that a
  // fused kernel can update and whose grad() is defined; grad() must be the view of the bucket. With
  // `leave_out`, a scalar of float32 on the device, the parameters only change if it is 0; updates are
  // counted in any case.
  void update(std::size_t bucket, const GradientFactor& factor = 1.0,
              const std::optional<torch::Tensor>& leave_out = std::nullopt);
  // Reduces the gradients of all ranks, which are in the layout of the bucket, and updates, both in one pass
  // over this rank's part of the bucket. The sum is not stored. Only with sharing.
  void update_from(std::size_t bucket, std::span<const std::byte* const> gradients_by_rank, bool average);
  // With sharing, call this in each step before any rank updates. Adopts what all ranks of the node
  // have changed in the same way since the last call. Returns false if there are other changes, or if
  // this is the `limit`-th call in a row that finds any; then this rank sees its own changes, and the
  // ranks must stop sharing.
  // Collective: every rank of the node must call this in the same order.
  bool prepare(int limit);
  // After prepare() has returned false: the index of the first parameter that ranks have changed in different
  // ways, if there is one.
  std::optional<std::size_t> first_difference() const { return first_difference_; }
  // From now on, this rank has parameters and state of its own, and updates all of them. No rank of the node
  // may change them while others call this.
  void stop_sharing();
  std::size_t shared_bytes() const;  // Parameters and state that the ranks of the node share.
  std::size_t state_bytes() const;   // State of parameters that fused kernels update.
  // Hashes of the memory in which parameters belong; each rank of the node computes some. None if a rank has
  // changed any. Only with sharing.
  // Collective: every rank of the node must call this in the same order.
  KnownHashes hash_places();
  bool has_others() const { return others_; }
  // Updates all other parameters with the optimizer's own step(), which must not change parameters
  // that are already updated.
  void update_others();
  // Returns all parameters as one tensor per bucket, for writing.
  std::vector<torch::Tensor>& writable_parameters();

 private:
  struct Slot {
    std::optional<std::size_t> group{};  // Group in the optimizer; no value: not for a fused kernel.
    StateFields state{};                 // Views of the flat state.
    bool has_state = false;              // They have been used. Only with sharing.
  };
  struct Run;

  void find_groups();
  void find_changed_groups();
  std::vector<torch::Tensor> share_flat(Views views);
  void share_state();
  void move_all_into_place();
  bool adopt_changes();
  bool any_has_changes(const char* meeting);
  std::span<std::uint64_t> notes_of(int node_rank) const;
  void update_part(std::size_t bucket, const HostGradients& gradients);
  FlatRun piece_of(std::size_t bucket, std::size_t first, std::size_t end) const;
  UpdateRule rule_of(std::size_t group) const;
  std::vector<Run> runs(std::size_t bucket);
  StateFields places(std::size_t bucket, const BucketSlot& slot, const UpdateRule& rule);

  torch::optim::Optimizer& optimizer_;
  const BucketPlan& plan_;
  std::unique_ptr<FusedRule> rule_;
  NodeSharing* sharing_;
  std::shared_ptr<NodeBlocks> notes_;                // See notes_of().
  std::vector<std::shared_ptr<NodeBlocks>> shared_;  // Of the parameters, and of each field of the state.
  std::size_t turns_ = 0;                            // Number of calls of any_has_changes().
  int calls_with_changes_ = 0;                       // The last calls of prepare(), in a row.
  std::optional<std::size_t> first_difference_;
  // Indexed by tensor; places_ are views of the flat parameters, or, with sharing, of flat_views_.
  std::vector<torch::Tensor> parameters_, places_;
  std::vector<torch::Tensor> gradients_;  // Indexed by bucket; flat, as are the next two.
  std::vector<torch::Tensor> flat_parameters_;
  std::vector<torch::Tensor> flat_views_;  // Only with sharing: what this rank sees of flat_parameters_.
  std::vector<StateFields> flat_state_;    // Indexed by bucket; created when first needed.
  std::vector<Slot> slots_;                // Indexed by tensor.
  std::size_t in_groups_ = 0;              // Number of parameters of all groups at the last check.
  bool others_ = false;                    // Some parameters are not for a fused kernel.
};

}  // namespace farandole
