#include "farandole/trainer/data/device_input.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace farandole {

DeviceInput::DeviceInput(torch::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl streams(device.type());
  lane_.emplace(Lane{streams.getStreamFromGlobalPool(device), c10::Event(device.type())});
}

// LibTorch keeps the pinned memory until it has been copied. It takes the memory of the batch from what
// earlier copies on this stream have used, and these need not wait for the stream that computes.
Batch DeviceInput::start(const Batch& batch) {
  if (!lane_) return batch;
  const c10::StreamGuard guard(lane_->stream);
  const auto copied = [&](const torch::Tensor& tensor) {
    const auto ordered = tensor.dim() == 4 ? tensor.contiguous(torch::MemoryFormat::ChannelsLast) : tensor;
    return ordered.pin_memory().to(lane_->stream.device(), /*non_blocking=*/true);
  };
  const Batch there{copied(batch.x), copied(batch.y)};
  lane_->copied.record(lane_->stream);
  return there;
}

void DeviceInput::hold(const Batch& batch) const {
  if (!lane_) return;
  const auto device = lane_->stream.device();
  const auto current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  lane_->copied.block(current);
  for (const auto& tensor : {batch.x, batch.y}) tensor.record_stream(current);
}

}  // namespace farandole
