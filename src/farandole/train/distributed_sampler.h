// Selects this rank's samples in an epoch, with the same indices as torch.utils.data.DistributedSampler. In
// addition, it can continue within an epoch, on any number of ranks. It is a sampler of torch::data:
//
//   auto loader = torch::data::make_data_loader(std::move(data), sampler, options);
//
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <torch/data/samplers/base.h>
#include <vector>

namespace farandole {

struct SamplerOptions {
  bool shuffle = true;
  bool drop_last = false;  // False: the last ranks repeat samples from the front of the epoch.
  std::uint64_t seed = 0;  // Must be equal on all ranks.
};

// Copies share their position, so that set_epoch() reaches the copy that a data loader keeps.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  // Distributes `size` samples over `world_size` ranks; this rank is `rank`.
  // Throws: UserError if the data set is empty, if the rank is out of range, or, with drop_last, if there are
  // more ranks than samples.
  DistributedSampler(std::int64_t size, int rank, int world_size, SamplerOptions options = {});

  // For any object with rank() and size(), such as a Session or a Communicator.
  template <class S>
  DistributedSampler(std::int64_t size, const S& session, SamplerOptions options = {})
      : DistributedSampler(size, session.rank(), session.size(), options) {}

  // The order is a function of seed + epoch. Call this on all ranks before each epoch, also after a restart.
  // A Run that tracks the sampler does.
  void set_epoch(std::int64_t epoch) { set_position(epoch, 0); }
  // Continues within an epoch: all ranks together have already seen the first `seen` samples of its order.
  // The number of ranks may have changed since then.
  // Throws: UserError if `seen` is negative or more than the samples of the data set.
  void set_position(std::int64_t epoch, std::int64_t seen);
  std::int64_t epoch() const { return place_->epoch; }
  std::int64_t seen() const { return place_->seen; }  // at the last set_position()
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  std::int64_t dataset_size() const { return dataset_size_; }
  const SamplerOptions& options() const { return options_; }

  // Returns this rank's samples of the rest of the epoch in order; equally many on every rank.
  std::vector<std::int64_t> indices() const;
  std::int64_t size() const;  // of indices()
  // The number of ranks whose last sample repeats another rank's, so that all have equally many. These are
  // the last ranks. Always 0 with drop_last.
  int repeating_ranks() const;

  // For a data loader: begins indices() anew, and returns the next batch of them. The size cannot change.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  // The size of the batches that a data loader takes; 0 before the first.
  std::int64_t batch_size() const { return place_->batch_size; }
  // The position, as set_position() takes it.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Place {
    std::int64_t epoch = 0, seen = 0, batch_size = 0;
  };
  std::int64_t dataset_size_;
  int rank_;
  int world_size_;
  SamplerOptions options_;
  std::shared_ptr<Place> place_ = std::make_shared<Place>();
  // Of the epoch that a data loader reads.
  std::vector<std::int64_t> order_;
  std::size_t taken_ = 0;
};

}  // namespace farandole
