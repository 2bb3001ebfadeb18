#include "farandole/train/run/device_copies.h"

#include <memory>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
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
  auto tensors = std::exchange(tensors_, {});
  auto targets = std::exchange(targets_, {});
  std::vector<GpuStaging::Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    pieces.push_back({tensors[i].const_data_ptr(), targets[i].size()});
  std::shared_ptr<const GpuStaging::Copies> copies;
  try {
    copies = staging_.start(pieces, gpu_.current_stream());
  } catch (const Error& error) {
    log_warning("the step waits until its checkpoint is copied from the GPU: {}", error.what());
    for (std::size_t i = 0; i < tensors.size(); ++i)
      copy_bytes(targets[i].data(), static_cast<const std::byte*>(tensors[i].cpu().const_data_ptr()),
                 targets[i].size());
    return {};
  }
  kept_ = std::move(tensors);
  return [copies = std::move(copies), targets = std::move(targets), runtime = gpu_.runtime,
          device = gpu_.device] {
    runtime->use(device);  // or else CUDA takes memory of the first GPU for a thread that asks for an event
    copies->wait();
    for (std::size_t i = 0; i < targets.size(); ++i) copies->read(i, targets[i].data());
  };
}

// LibTorch may use the memory of a tensor again for work that it queues later, which then waits, too.
void DeviceCopies::hold() {
  staging_.hold(gpu_.current_stream());
  kept_.clear();
}

}  // namespace farandole
