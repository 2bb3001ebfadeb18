#include "farandole/train/update/node_update.h"

#include <algorithm>
#include <fmt/format.h>
#include <torch/utils.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/train/replicas/replica_hashes.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {

using torch::Tensor;

namespace {

std::shared_ptr<NodeBlocks> map_buckets(NodeSharing& sharing, const BucketPlan& plan, Views views) {
  std::vector<std::size_t> bytes;
  for (const auto& bucket : plan.buckets) bytes.push_back(bucket.payload * size_of(bucket.dtype));
  return sharing.map(bytes, views);
}

// One tensor per bucket, in memory that `owner` keeps.
std::vector<Tensor> flat_tensors_in(const std::vector<std::byte*>& places, const BucketPlan& plan,
                                    const std::shared_ptr<NodeBlocks>& owner) {
  std::vector<Tensor> flat;
  for (std::size_t b = 0; b < places.size(); ++b)
    flat.push_back(torch::from_blob(
        places[b], {static_cast<std::int64_t>(plan.buckets[b].payload)}, [owner](void*) {},
        scalar_type_of(plan.buckets[b].dtype)));
  return flat;
}

}  // namespace

struct NodeUpdate::Mapped {
  std::shared_ptr<NodeBlocks> parameters;
  FlatBuckets::Memory memory;
};

NodeUpdate::Mapped NodeUpdate::map_parameters(OptimizerRules& rules, const BucketPlan& plan,
                                              std::vector<Tensor> gradients, NodeSharing& sharing) {
  auto blocks = map_buckets(sharing, plan, Views::yes);
  FlatBuckets::Memory memory{.gradients = std::move(gradients),
                             .parameters = flat_tensors_in(blocks->blocks(), plan, blocks),
                             .seen = flat_tensors_in(blocks->views(), plan, blocks),
                             .states = &rules.optimizer().state(),
                             .zeroed = true};
  for (const auto& bucket : plan.buckets) {
    const auto [first, last] = sharing.own_part(bucket.payload, size_of(bucket.dtype));
    memory.parts.push_back({first, last});
  }
  return {std::move(blocks), std::move(memory)};
}

NodeUpdate::NodeUpdate(OptimizerRules& rules, const BucketPlan& plan, std::vector<Tensor> gradients,
                       NodeSharing& sharing, const NodeOptions& options)
    : NodeUpdate(rules, plan, map_parameters(rules, plan, std::move(gradients), sharing), sharing, options) {}

NodeUpdate::NodeUpdate(OptimizerRules& rules, const BucketPlan& plan, Mapped mapped, NodeSharing& sharing,
                       const NodeOptions& options)
    : ParameterUpdate({rules, plan, std::move(mapped.memory)}),
      sharing_(sharing),
      options_(options),
      shared_{std::move(mapped.parameters)},
      has_state_(rules.parameters().size()) {
  const torch::NoGradGuard no_grad;
  share_state();
  const auto notes = static_cast<std::size_t>(sharing_.node_size()) * (has_state_.size() + 2);
  notes_ = sharing_.map(std::vector{notes * sizeof(std::uint64_t)}, Views::no);
  if (sharing_.node_rank() == 0)
    for (std::size_t b = 0; b < plan.buckets.size(); ++b)
      for (const auto& slot : plan.buckets[b].slots) {
        const auto& parameter = rules.parameters()[slot.tensor];
        slot_view(flat_.memory().parameters[b], slot, parameter).copy_(parameter);
      }
  sharing_.meet("shared parameters");
  for (std::size_t i = 0; i < has_state_.size(); ++i) rules.parameters()[i].set_data(flat_.places()[i]);
}

ParameterUpdate::Needs NodeUpdate::needs() const {
  if (shared_.empty()) return Needs::bucket;
  return options_.reduces ? Needs::buckets_of_ranks : Needs::all_buckets;
}

// Shares the fields of the state that any group needs.
void NodeUpdate::share_state() {
  const auto& rules = flat_.rules();
  for (std::size_t f = 0; f < update_fields; ++f) {
    bool used = false;
    for (std::size_t i = 0; i < has_state_.size(); ++i)
      if (const auto group = rules.group_of(i)) used = used || rules.rule_of(*group).uses(f);
    if (!used || flat_.state(0)[f].defined()) continue;
    shared_.push_back(map_buckets(sharing_, flat_.plan(), Views::no));
    const auto flat = flat_tensors_in(shared_.back()->blocks(), flat_.plan(), shared_.back());
    for (std::size_t b = 0; b < flat.size(); ++b) flat_.state(b)[f] = flat[b];
  }
}

void NodeUpdate::begin() {
  meets_ = !shared_.empty();
  if (!meets_) return;
  const torch::NoGradGuard no_grad;
  move_all_into_place();
  if (!any_has_changes()) {
    steps_with_changes_ = 0;
    return;
  }
  constexpr int in_every_step = 3;
  std::string reason;
  if (const auto differing = find_difference()) {
    reason = fmt::format("the ranks of a node have changed {} in different ways",
                         flat_.plan().tensors[*differing].name);
  } else {
    adopt_changes();
    if (++steps_with_changes_ < in_every_step || options_.required) return;
    reason = "the program changes parameters in every step";
  }
  if (options_.required)
    throw UserError(reason + ", so that they cannot share parameters; change them alike, or use shard auto");
  stop_sharing(reason, false);
  if (sharing_.node_rank() == 0)
    log_warning("parameters and optimizer state are no longer divided by the ranks of a node: {}", reason);
}

// No rank may change gradients or parameters before all parts are updated.
void NodeUpdate::end() {
  if (std::exchange(meets_, false)) sharing_.meet("end of the update");
}

// What a rank tells the others: two answers to any_has_changes(), in turns, and the hashes of its parameters.
std::span<std::uint64_t> NodeUpdate::notes_of(int node_rank) const {
  const auto count = has_state_.size() + 2;
  return {reinterpret_cast<std::uint64_t*>(notes_->blocks().front()) +
              static_cast<std::size_t>(node_rank) * count,
          count};
}

// Another rank may still read the last answer.
bool NodeUpdate::any_has_changes() {
  const std::size_t turn = ++turns_ % 2;
  notes_of(sharing_.node_rank())[turn] = shared_.front()->has_changes();
  sharing_.meet("begin of the update");
  bool any = false;
  for (int r = 0; r < sharing_.node_size(); ++r) any |= notes_of(r)[turn] != 0;
  return any;
}

// Returns the first parameter that ranks have changed in different ways.
std::optional<std::size_t> NodeUpdate::find_difference() {
  const auto hashes = notes_of(sharing_.node_rank()).subspan(2);
  for (std::size_t i = 0; i < hashes.size(); ++i) hashes[i] = hash_of(flat_.places()[i]);
  sharing_.meet("changes of parameters");
  auto first = hashes.size();
  for (int r = 0; r < sharing_.node_size(); ++r) {
    const auto differs = std::ranges::mismatch(hashes, notes_of(r).subspan(2)).in1;
    first = std::min(first, static_cast<std::size_t>(differs - hashes.begin()));
  }
  return first < hashes.size() ? std::optional(first) : std::nullopt;
}

// Copies what all ranks see in the same way into the memory of the node.
void NodeUpdate::adopt_changes() {
  const auto& memory = flat_.memory();
  for (std::size_t b = 0; b < memory.parts.size(); ++b) {
    const auto [first, last] = memory.parts[b];
    elements(memory.parameters[b], first, last - first).copy_(elements(memory.seen[b], first, last - first));
  }
  sharing_.meet("changes of parameters");
  shared_.front()->drop_changes();
}

// State that programs have replaced or removed is replaced or zeroed in the memory of the node.
void NodeUpdate::move_all_into_place() {
  share_state();
  flat_.move_all_into_place();
  const auto& rules = flat_.rules();
  auto& states = *flat_.memory().states;
  for (std::size_t b = 0; b < flat_.plan().buckets.size(); ++b)
    for (const auto& slot : flat_.plan().buckets[b].slots) {
      const auto group = rules.group_of(slot.tensor);
      if (!group) continue;
      const auto places = flat_.state_places(b, slot, rules.rule_of(*group));
      const auto found = states.find(rules.parameters()[slot.tensor].unsafeGetTensorImpl());
      const bool has_state = found != states.end() && found->second != nullptr;
      const auto now = has_state ? rules.tensors_of(*found->second) : StateTensors();
      for (std::size_t f = 0; f < update_fields; ++f) {
        if (!places[f].defined()) continue;
        const bool has_values = has_state && now[f]->defined();
        if (has_values && !same_place(*now[f], places[f])) *now[f] = places[f].copy_(*now[f]);
        if (!has_values && has_state_[slot.tensor]) places[f].zero_();
      }
      has_state_[slot.tensor] = has_state;
    }
}

void NodeUpdate::stop_sharing(const std::string& why, bool meet) {
  if (shared_.empty()) return;
  if (meet) sharing_.meet("end of shared parameters");
  for (const auto& blocks : shared_) blocks->make_private();
  shared_.clear();
  auto& memory = flat_.memory();
  memory.parameters = memory.seen;
  memory.zeroed = false;
  for (std::size_t b = 0; b < memory.parts.size(); ++b)
    memory.parts[b] = {0, flat_.plan().buckets[b].payload};
  if (meet) sharing_.meet("end of shared parameters");
  why_not_ = why;
}

Sharding NodeUpdate::sharding() const {
  if (shared_.empty()) return {false, why_not_};
  std::size_t bytes = 0;
  for (const auto& bucket : flat_.plan().buckets) bytes += bucket.payload * size_of(bucket.dtype);
  bytes *= shared_.size();
  return {.divided = true,
          .why_not = {},
          .ranks = sharing_.node_size(),
          .bytes = bytes,
          .bytes_undivided = bytes * static_cast<std::size_t>(sharing_.node_size())};
}

}  // namespace farandole
