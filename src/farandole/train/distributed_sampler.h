// Which samples are this rank's in an epoch: torch.utils.data.DistributedSampler, index for index.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <vector>

namespace farandole {

struct SamplerOptions {
  bool shuffle = true;
  bool drop_last =
      false;  // false: the last ranks' shares are filled up with samples from the front of the epoch
  std::uint64_t seed = 0;  // the same on all ranks
};

class DistributedSampler {
 public:
  // `size` samples are dealt to `world_size` ranks, of which this is `rank`.
  // Throws: UserError for an empty data set, a rank outside the world, or, with drop_last, more ranks than
  // samples.
  DistributedSampler(std::int64_t size, int rank, int world_size, SamplerOptions options = {});

  // For what has rank() and size(): a Session, a Group.
  template <class S>
  DistributedSampler(std::int64_t size, const S& session, SamplerOptions options = {})
      : DistributedSampler(size, session.rank(), session.size(), options) {}

  // The order is a function of seed + epoch: call on all ranks before each epoch, also after a restart.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  std::int64_t epoch() const { return epoch_; }

  // This rank's samples of the current epoch, in order; equally many on every rank.
  std::vector<std::int64_t> indices() const;
  std::int64_t size() const { return samples_; }  // of indices()

 private:
  std::int64_t dataset_size_;
  int rank_;
  int world_size_;
  SamplerOptions options_;
  std::int64_t samples_;
  std::int64_t epoch_ = 0;
};

}  // namespace farandole
