// The batches of one rank in an epoch, or in its rest, in order. The next batch can be fetched, and its copy
// to the GPU started, while the GPU still computes with the one before.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <cstdint>
#include <optional>
#include <torch/types.h>
#include <vector>

#include "farandole/timeline/timeline.h"
#include "farandole/train/distributed_sampler.h"
#include "farandole/trainer/data/dataset.h"

namespace farandole {

// Copies batches to a GPU, on a stream of its own, while other streams compute.
class DeviceInput {
 public:
  explicit DeviceInput(torch::Device device);

  // False on a CPU: batches are used where they are, and the functions below do nothing.
  bool copies() const { return lane_.has_value(); }
  // Queues the copy of a batch, and returns the batch on the device. The host does not wait. Images are in
  // the order "channels last".
  Batch start(const Batch& batch);
  // To be called before a batch from start() is used: work that is queued on the current stream from
  // now on waits until it has been copied, and its memory is not used again before this work. The host
  // does not wait.
  void hold(const Batch& batch) const;

 private:
  struct Lane {
    c10::Stream stream;
    c10::Event copied;  // The batches so far.
  };
  std::optional<Lane> lane_;
};

class BatchSequence {
 public:
  struct Weighted {
    Batch batch;
    double weight = 1;  // Of the batch's mean loss, so that the ranks' average counts all samples equally.
  };

  // Begins at the present position of the sampler. Batches have at most `batch` samples. `data`, `input` and
  // `timeline` must outlive this object.
  BatchSequence(const Dataset& data, const DistributedSampler& sampler, std::int64_t batch,
                DeviceInput& input, Timeline& timeline);

  std::int64_t left() const { return batches_ - taken_; }  // Batches that next() has not returned.
  // Samples of the epoch up to the last batch of next(), of all ranks. What was fetched ahead does not count.
  std::int64_t seen() const;
  // Returns the next batch, for work of the current stream. Call it only if one is left.
  Weighted next();
  // Fetches the next batch now, if there is one and it was not fetched. It is dropped if next()
  // is not called.
  void prefetch();

 private:
  Weighted fetch() const;

  const Dataset& data_;
  const DistributedSampler sampler_;
  const std::int64_t batch_;
  DeviceInput& input_;
  Timeline& timeline_;
  const std::vector<std::int64_t> indices_;
  const std::int64_t batches_;  // Of indices_; the last one may be smaller.
  std::int64_t taken_ = 0;
  std::optional<Weighted> ahead_;
};

}  // namespace farandole
