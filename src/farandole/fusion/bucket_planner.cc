#include "farandole/fusion/bucket_planner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/quantile.h"

namespace farandole {

std::vector<std::size_t> bucket_sizes_to_try(const std::vector<TensorSpec>& tensors, std::size_t preset) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  std::vector<std::size_t> sizes = {preset};
  const auto buckets_of = [&](std::size_t bytes) {
    return plan_buckets(tensors, BucketOptions{bytes}).buckets.size();
  };
  std::set<std::size_t> seen = {buckets_of(preset)};
  for (const std::size_t bytes : {100 * mib, 8 * mib, 2 * mib})
    if (seen.insert(buckets_of(bytes)).second) sizes.push_back(bytes);
  return sizes;
}

Autotuner::Autotuner(const std::vector<std::size_t>& sizes) : agreed_(sizes.size()) {
  for (const auto bytes : sizes) trials_.push_back({bytes, {}});
}

std::size_t Autotuner::remaining() const {
  return static_cast<std::size_t>(
      std::count_if(trials_.begin(), trials_.end(), [](const Trial& trial) { return !trial.out; }));
}

bool Autotuner::record(double milliseconds) {
  ++steps_;
  if (steps_in_turn_++ > 0) trials_[now_].milliseconds.push_back(milliseconds);
  if (steps_in_turn_ < steps_a_turn) return false;
  steps_in_turn_ = 0;
  const auto before = now_;
  do now_ = (now_ + 1) % trials_.size();
  while (trials_[now_].out);
  return now_ <= before;
}

std::vector<double> Autotuner::medians() const {
  std::vector<double> result;
  for (const auto& trial : trials_) result.push_back(trial.out ? 0 : quantile(trial.milliseconds, 0.5));
  return result;
}

void Autotuner::decide(std::span<const double> medians) {
  ++round_;
  for (std::size_t i = 0; i < trials_.size(); ++i)
    if (!trials_[i].out) agreed_[i] = medians[i];
  best_ = 0;
  for (std::size_t i = 1; i < trials_.size(); ++i)
    if (!trials_[i].out && agreed_[i] < agreed_[best_]) best_ = i;
  for (std::size_t i = 1; i < trials_.size(); ++i)
    trials_[i].out = trials_[i].out || agreed_[i] > hopeless * agreed_[best_];
  // The default is measured until the end, so that the gain of the others can be computed.
  if (finished() && agreed_[best_] > better * agreed_.front()) best_ = 0;
}

BucketPlanner::BucketPlanner(Communicator& ranks, std::vector<TensorSpec> tensors, const Options& options)
    : ranks_(ranks),
      tensors_(std::move(tensors)),
      tune_(options.tune),
      sizes_(options.sizes),
      ordered_(options.keep_order) {}

bool BucketPlanner::reconsider(std::span<const std::size_t> first_order) {
  if (!ordered_ && !first_order.empty()) {
    ordered_ = true;
    std::vector<std::uint64_t> of_root(first_order.begin(), first_order.end());
    ranks_.broadcast("order of gradients", of_root.data(), of_root.size() * sizeof of_root[0], 0);
    order_.assign(of_root.begin(), of_root.end());
    if (tune_ && ranks_.size > 1) tuner_.emplace(bucket_sizes_to_try(tensors_, sizes_.bytes));
    return true;
  }
  if (!tuner_ || tuner_->current() == sizes_.bytes) return false;
  sizes_.bytes = tuner_->current();
  return true;
}

// The ranks communicate once per round.
void BucketPlanner::step_ended() {
  const auto before = std::exchange(step_ended_ns_, now_ns());
  if (!tuner_ || tuner_->finished() || before == 0 || sizes_.bytes != tuner_->current()) return;
  if (!tuner_->record(static_cast<double>(step_ended_ns_ - before) * 1e-6)) return;
  auto medians = tuner_->medians();
  ranks_.allreduce("medians of steps", medians.data(), medians.size(), DType::float64, ReduceOp::max);
  tuner_->decide(medians);
}

}  // namespace farandole
