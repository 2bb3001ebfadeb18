// Copies batches to a GPU, on a stream of its own, while other streams compute.
// Thread safety: call from the training thread only.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <optional>
#include <torch/types.h>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

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

}  // namespace farandole
