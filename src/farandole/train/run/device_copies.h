// Copies tensors of a GPU into memory of the host while training goes on, for snapshots.
// Thread safety: call from the training thread only.
#pragma once

#include <functional>
#include <span>
#include <torch/types.h>
#include <vector>

#include "farandole/comm/gpu/gpu_staging.h"
#include "farandole/fusion/gpu_buckets.h"

namespace farandole {

class DeviceCopies {
 public:
  // Of tensors on `device`, which is the session's.
  DeviceCopies(const GpuOfRank& gpu, torch::Device device);

  // Pinned memory for copies of this size together is taken in the background.
  void prepare(std::size_t bytes) { staging_.prepare(bytes, gpu_.device); }
  bool takes(const torch::Tensor& tensor) const { return tensor.device() == device_; }
  // start() copies the tensor as it is then. It is kept until hold() is called or the next
  // copies have started.
  void add(const torch::Tensor& tensor, std::span<std::byte> to);
  // Queues the copies of what was added, behind the work of the current stream. The returned function waits
  // for the device and fills the memory of the host. It can be called on any thread,
  // whose device is then that of the copies. If the machine has too little pinned memory for them, start()
  // itself waits and fills the memory, and returns an empty function.
  std::function<void()> start();
  // To be called before the copied tensors change: work that is queued on the current stream from now on
  // waits until the device has read them. The host does not wait.
  void hold();

 private:
  const GpuOfRank gpu_;
  const torch::Device device_;
  GpuStaging staging_;
  std::vector<torch::Tensor> tensors_, kept_;
  std::vector<std::span<std::byte>> targets_;
};

}  // namespace farandole
