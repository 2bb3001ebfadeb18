#include "farandole/train/distributed_sampler.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

void check(std::int64_t size, int rank, int world_size, const SamplerOptions& options) {
  if (size < 1) throw UserError(fmt::format("the sampler has {} samples; the data set is empty", size));
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw UserError(fmt::format("the sampler has rank {} of {}; ranks are 0 to size - 1", rank, world_size));
  }
  if (options.drop_last && size < world_size) {
    throw UserError(
        fmt::format("{} samples cannot be distributed over {} ranks with drop_last; use fewer ranks, or "
                    "repeat samples "
                    "(drop_last off)",
                    size, world_size));
  }
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t size, int rank, int world_size, SamplerOptions options)
    : dataset_size_(size), rank_(rank), world_size_(world_size), options_(options) {
  check(size, rank, world_size, options);
}

void DistributedSampler::set_position(std::int64_t epoch, std::int64_t seen) {
  if (seen < 0 || seen > dataset_size_)
    throw UserError(fmt::format("the sampler cannot continue after sample {} of {}", seen, dataset_size_));
  place_->epoch = epoch;
  place_->seen = seen;
}

std::int64_t DistributedSampler::size() const {
  const auto rest = dataset_size_ - seen();
  return options_.drop_last ? rest / world_size_ : (rest + world_size_ - 1) / world_size_;
}

int DistributedSampler::repeating_ranks() const {
  const auto rest = dataset_size_ - seen();
  return static_cast<int>(std::max<std::int64_t>(0, size() * world_size_ - rest));
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(dataset_size_));
  if (options_.shuffle) {
    auto generator = at::detail::createCPUGenerator(options_.seed + static_cast<std::uint64_t>(epoch()));
    auto target = torch::from_blob(order.data(), {dataset_size_}, torch::kInt64);
    at::randperm_out(target, dataset_size_, generator);
  } else {
    std::iota(order.begin(), order.end(), std::int64_t{0});
  }
  // Position i of the padded order is order[i % size]. PyTorch pads by repeating the whole order
  // as often as needed.
  std::vector<std::int64_t> mine(static_cast<std::size_t>(size()));
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const auto position = seen() + rank_ + static_cast<std::int64_t>(k) * world_size_;
    mine[k] = order[static_cast<std::size_t>(position % dataset_size_)];
  }
  return mine;
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size && static_cast<std::int64_t>(*new_size) != dataset_size_)
    throw UserError(
        fmt::format("the sampler has {} samples, and the data set {}; make them from the same data",
                    dataset_size_, *new_size));
  order_ = indices();
  taken_ = 0;
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  place_->batch_size = static_cast<std::int64_t>(batch_size);
  if (taken_ >= order_.size()) return std::nullopt;
  const auto end = std::min(order_.size(), taken_ + batch_size);
  std::vector<std::size_t> batch(order_.begin() + static_cast<std::ptrdiff_t>(taken_),
                                 order_.begin() + static_cast<std::ptrdiff_t>(end));
  taken_ = end;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", torch::tensor(epoch(), torch::kInt64), /*is_buffer=*/true);
  archive.write("seen", torch::tensor(seen(), torch::kInt64), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch, seen;
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("seen", seen, /*is_buffer=*/true);
  set_position(epoch.item<std::int64_t>(), seen.item<std::int64_t>());
}

}  // namespace farandole
