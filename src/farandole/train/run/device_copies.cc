#include "farandole/train/run/device_copies.h"

#include <utility>

#include "farandole/comm/kernels/kernels.h"

namespace farandole {

DeviceCopies::DeviceCopies(const GpuOfRank& gpu, torch::Device device)
    : gpu_(gpu), device_(device), staging_(gpu.runtime) {}

void DeviceCopies::add(const torch::Tensor& tensor, std::span<std::byte> to) {
  if (to.empty()) return;
  tensors_.push_back(tensor.detach().contiguous());
  targets_.push_back(to);
}

std::function<void()> DeviceCopies::start() {
  std::vector<GpuStaging::Piece> pieces;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    pieces.push_back({tensors_[i].const_data_ptr(), targets_[i].size()});
  auto copies = staging_.start(pieces, gpu_.current_stream());
  kept_ = std::exchange(tensors_, {});
  return [copies = std::move(copies), targets = std::exchange(targets_, {}), runtime = gpu_.runtime,
          device = gpu_.device] {
    runtime->use(device);  // or else CUDA takes memory of the first GPU for a thread that asks for an event
    copies->wait();
    for (std::size_t i = 0; i < targets.size(); ++i)
      copy_bytes(targets[i].data(), copies->piece(i).data(), targets[i].size());
  };
}

// LibTorch may use the memory of a tensor again for work that it queues later, which then waits, too.
void DeviceCopies::hold() {
  staging_.hold(gpu_.current_stream());
  kept_.clear();
}

}  // namespace farandole
