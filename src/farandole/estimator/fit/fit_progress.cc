#include "farandole/estimator/fit/fit_progress.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <torch/utils.h>
#include <vector>

#include "farandole/base/text/json.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/train/run/training_state.h"

namespace farandole {
namespace {

template <class T>
std::vector<T> values_of(const Array* array) {
  if (array == nullptr) return {};
  std::vector<T> values(array->bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), array->bytes.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
void add(SnapshotBuilder& snapshot, const std::string& path, DType dtype, const std::vector<T>& values,
         const std::vector<std::int64_t>& shape) {
  const auto to = snapshot.add(path, dtype, shape);
  if (!to.empty()) std::memcpy(to.data(), values.data(), to.size());
}

}  // namespace

FitProgress FitProgress::from(const Snapshot& snapshot) {
  const auto position = position_of(snapshot);
  FitProgress progress{.step = position.step, .epoch = position.epoch};
  const auto passes = values_of<std::int64_t>(snapshot.find(schema::sampler_passes)),
             bounds = values_of<std::int64_t>(snapshot.find(schema::sampler_ranges));
  const auto loss = values_of<double>(snapshot.find(schema::sampler_loss));
  // Checkpoints of earlier versions do not have these: the epoch begins anew.
  if (position.samples == 0 || passes.size() != 1 || loss.size() != 2) return progress;
  progress.passes = passes[0];
  progress.loss = loss[0];
  progress.steps = static_cast<std::int64_t>(loss[1]);
  for (std::size_t i = 0; i + 1 < bounds.size(); i += 2) progress.done.push_back({bounds[i], bounds[i + 1]});
  return progress;
}

void FitProgress::add_to(SnapshotBuilder& snapshot) const {
  std::vector<std::int64_t> bounds;
  for (const auto& [first, end] : done) bounds.insert(bounds.end(), {first, end});
  add(snapshot, schema::sampler_ranges, DType::int64, bounds, {static_cast<std::int64_t>(done.size()), 2});
  add(snapshot, schema::sampler_loss, DType::float64, std::vector{loss, static_cast<double>(steps)}, {2});
  snapshot.add_integer(schema::sampler_passes, passes);
}

std::string FitProgress::to_json() const {
  Json ranges = Json::array();
  for (const auto& [first, end] : done) ranges.push_back({first, end});
  return json_text({{"step", step},
                    {"epoch", epoch},
                    {"passes", passes},
                    {"done", ranges},
                    {"loss", loss},
                    {"steps", steps}});
}

FitProgress FitProgress::from_json(const std::string& text) {
  const auto json = parse_json(text);
  FitProgress progress{json.at("step"), json.at("epoch"), json.at("passes"), {},
                       json.at("loss"), json.at("steps")};
  for (const auto& range : json.at("done")) progress.done.push_back({range.at(0), range.at(1)});
  return progress;
}

void add_scores(SnapshotBuilder& snapshot, const torch::Tensor& sums) {
  const auto to = snapshot.add(schema::sampler_scores, DType::float64, sums.sizes().vec());
  std::memcpy(to.data(), sums.data_ptr(), to.size());
}

torch::Tensor scores_in(const Snapshot& snapshot) {
  const auto values = values_of<double>(snapshot.find(schema::sampler_scores));
  return values.empty() ? torch::Tensor() : torch::tensor(values, torch::kFloat64);
}

}  // namespace farandole
