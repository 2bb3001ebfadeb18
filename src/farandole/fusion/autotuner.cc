#include "farandole/fusion/autotuner.h"

#include <algorithm>
#include <set>

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

}  // namespace farandole
