#include "farandole/train/replicas/replica_guard.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <torch/utils.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/train/replicas/replica_hashes.h"

namespace farandole {
namespace {

// "the parameters of rank 1 differ from those of rank 0 …: 3 of 4, the first is fc.weight"
std::string describe(const std::vector<Disagreement>& differences, const char* when, std::size_t parameters) {
  const auto& variants = differences.front().variants;
  std::vector<int> others;
  for (auto variant = variants.begin() + 1; variant != variants.end(); ++variant)
    others.insert(others.end(), variant->ranks.begin(), variant->ranks.end());
  std::sort(others.begin(), others.end());
  const auto& line = variants.front().text;
  return fmt::format("the parameters of {} differ from those of rank 0 {} ({} of {}, the first is {})",
                     describe_ranks(others), when, differences.size(), parameters,
                     line.substr(0, line.find(' ')));
}

}  // namespace

void ReplicaGuard::note_start(const Communicator& ranks) {
  if (!compared_ && ranks.size > 1) start_ = hashes_of(named_);
}

void ReplicaGuard::compare_start(Communicator& ranks) {
  if (std::exchange(compared_, true) || ranks.size == 1) return;
  const auto differences = find_disagreements(ranks, "parameters at the start", std::exchange(start_, {}));
  if (!differences.empty())
    throw UserError(describe(differences, "at the first step", named_.size()) +
                    "; call session.broadcast(*net) before the first step");
}

void ReplicaGuard::step_ended() {
  ++steps_;
  version_ = version();
}

std::int64_t ReplicaGuard::version() const {
  std::int64_t sum = 0;
  for (const auto& item : named_)
    if (!item.value().is_inference()) sum += static_cast<std::int64_t>(item.value()._version());
  return sum;
}

void ReplicaGuard::compare_end(Communicator& ranks) const {
  if (steps_ == 0 || ranks.size == 1) return;
  int changed = version() != version_ ? 1 : 0;
  ranks.allreduce(CollectiveRegistry::training_end, &changed, 1, DType::int32, ReduceOp::max);
  if (changed != 0) return;
  const auto differences = find_disagreements(ranks, "parameters at the end", hashes_of(named_));
  if (differences.empty()) return;
  constexpr std::size_t most = 8;
  double distance = 0;
  for (std::size_t i = 0; i < std::min(most, differences.size()); ++i)
    distance = std::max(distance, largest_distance(ranks, static_cast<std::int64_t>(differences[i].line)));
  const auto text = describe(differences, "at the end of the training", named_.size());
  if (distance > 1e-3)
    throw UserError(text +
                    "; do not use this model, and look for code that changes parameters on some ranks only");
  log_warning("{}, by {:.1g} of their norm at most; look for processors of different kinds", text, distance);
}

// Relative to the norm of rank 0's parameter.
double ReplicaGuard::largest_distance(Communicator& ranks, std::int64_t parameter) const {
  const torch::NoGradGuard no_grad;
  const auto own = named_[static_cast<std::size_t>(parameter)].value().detach().cpu().contiguous();
  const auto root = own.clone();
  ranks.broadcast("parameter", root.data_ptr(), root.nbytes(), 0);
  const auto norm = [](const torch::Tensor& tensor) {
    return tensor.to(torch::kFloat64).norm().item<double>();
  };
  double distance =
      own.equal(root) ? 0 : norm(own.to(torch::kFloat64) - root.to(torch::kFloat64)) / norm(root);
  if (!(distance < std::numeric_limits<double>::max())) distance = std::numeric_limits<double>::max();
  ranks.allreduce("distance", &distance, 1, DType::float64, ReduceOp::max);
  return distance;
}

}  // namespace farandole
