// Selects this rank's samples in an epoch, with the same indices as torch.utils.data.DistributedSampler. In
// addition, it can continue within an epoch, on any number of ranks.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace farandole {

struct SamplerOptions {
  bool shuffle = true;
  bool drop_last = false;  // False: the last ranks repeat samples from the front of the epoch.
  std::uint64_t seed = 0;  // Must be equal on all ranks.
};

class DistributedSampler {
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
  void set_epoch(std::int64_t epoch) { set_position(epoch, 0); }
  // Continues within an epoch: all ranks together have already seen the first `seen` samples of its order.
  // The number of ranks may have changed since then.
  // Throws: UserError if `seen` is negative or more than the samples of the data set.
  void set_position(std::int64_t epoch, std::int64_t seen);
  std::int64_t epoch() const { return epoch_; }
  std::int64_t seen() const { return seen_; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // Returns this rank's samples of the rest of the epoch in order; equally many on every rank.
  std::vector<std::int64_t> indices() const;
  std::int64_t size() const;  // of indices()
  // The number of ranks whose last sample repeats another rank's, so that all have equally many. These are
  // the last ranks. Always 0 with drop_last.
  int repeating_ranks() const;

 private:
  std::int64_t dataset_size_;
  int rank_;
  int world_size_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t seen_ = 0;
};

}  // namespace farandole
