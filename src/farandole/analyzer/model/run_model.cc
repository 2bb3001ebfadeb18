#include "farandole/analyzer/model/run_model.h"

#include <algorithm>

namespace farandole {
namespace {

template <class Span>
std::vector<Span> shifted(std::vector<Span> spans, std::int64_t ns) {
  for (auto& span : spans) {
    span.start += ns;
    span.end += ns;
  }
  return spans;
}

template <class Span>
std::vector<Span> by_start(std::vector<Span> spans) {
  const auto earlier = [](const Span& a, const Span& b) { return a.start < b.start; };
  if (!std::is_sorted(spans.begin(), spans.end(), earlier))
    std::stable_sort(spans.begin(), spans.end(), earlier);
  return spans;
}

}  // namespace

void RankModel::shift_by(std::int64_t ns) {
  shift_ns += ns;
  steps = shifted(std::move(steps), ns);
  if (extent.start > extent.end) return;
  extent.start += ns;
  extent.end += ns;
}

std::vector<CategorySpan> RankModel::training() const {
  std::vector<CategorySpan> spans;
  packed_training.unpack(spans);
  return shifted(std::move(spans), shift_ns);
}

std::vector<CollectiveSpan> RankModel::collectives() const {
  std::vector<CollectiveSpan> spans;
  for (const auto& packed : packed_collectives) packed.unpack(spans);
  return shifted(by_start(std::move(spans)), shift_ns);
}

std::vector<CollectiveSpan> RankModel::gradients() const {
  std::vector<CollectiveSpan> ready;
  packed_gradients.unpack(ready);
  return shifted(std::move(ready), shift_ns);
}

std::vector<CategorySpan> RankModel::gpu() const {
  std::vector<CategorySpan> spans;
  for (std::size_t phase = 0; phase <= phase_count; ++phase) {
    const auto part = gpu_launched_in(phase);
    spans.insert(spans.end(), part.begin(), part.end());
  }
  return by_start(std::move(spans));
}

std::vector<CategorySpan> RankModel::gpu_launched_in(std::size_t phase) const {
  std::vector<CategorySpan> spans;
  for (const auto& packed : packed_gpu) packed[phase].unpack(spans);
  return shifted(by_start(std::move(spans)), shift_ns);
}

std::size_t RunModel::world_size() const {
  constexpr std::int64_t most = 1 << 24;
  for (const auto& stated : {facts.ranks, header.ranks})
    if (stated && *stated > 0 && *stated <= most)
      return std::max(ranks.size(), static_cast<std::size_t>(*stated));
  return ranks.size();
}

}  // namespace farandole
