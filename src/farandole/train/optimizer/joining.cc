#include "farandole/train/optimizer/joining.h"

#include <cmath>
#include <limits>
#include <vector>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// The options of a user-defined optimizer may have no learning rate.
double learning_rate(torch::optim::OptimizerParamGroup& group) {
  try {
    return group.options().get_lr();
  } catch (const c10::Error&) {
    return std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace

void Joining::begin(bool divide_by_all) {
  under_way_ = true;
  divide_by_all_ = divide_by_all;
}

Joining::Count Joining::count(bool active, bool contributes) {
  int counts[2] = {active ? 1 : 0, contributes ? 1 : 0};
  ranks_.allreduce("join", counts, 2, DType::int32, ReduceOp::sum);
  return {counts[0], counts[1]};
}

double Joining::correction(const Count& count) const {
  return divide_by_all_ ? 1 : ranks_.size / double(count.contributing);
}

bool Joining::agree_to_step(bool active, bool steps) {
  std::vector<double> own = {active ? 1.0 : 0.0, steps ? 1.0 : 0.0};
  for (auto& group : optimizer_.param_groups()) own.push_back(learning_rate(group));
  const auto ranks = static_cast<std::size_t>(ranks_.size);
  std::vector<double> all(own.size() * ranks);
  const std::vector<std::size_t> bytes(ranks, own.size() * sizeof own[0]);
  ranks_.all_gather("join step", own.data(), all.data(), bytes);
  const double* first = nullptr;  // The first active rank's values.
  for (std::size_t r = 0; r < ranks; ++r) {
    const double* const said = all.data() + r * own.size();
    if (said[0] == 0) continue;
    if (first == nullptr) first = said;
    if (said[1] != first[1])
      throw UserError(
          "some ranks call step() and others discard their gradients; all ranks must do the same");
  }
  if (first == nullptr) return false;
  for (std::size_t g = 0; !active && g < optimizer_.param_groups().size(); ++g)
    if (!std::isnan(first[2 + g])) optimizer_.param_groups()[g].options().set_lr(first[2 + g]);
  return first[1] != 0;
}

}  // namespace farandole
