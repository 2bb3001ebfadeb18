#include "farandole/trainer/data/batch_sequence.h"

#include <algorithm>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <span>
#include <utility>

namespace farandole {

BatchSequence::BatchSequence(const Dataset& data, const DistributedSampler& sampler, std::int64_t batch,
                             DeviceInput& input, Timeline& timeline)
    : data_(data),
      sampler_(sampler),
      batch_(batch),
      input_(input),
      timeline_(timeline),
      indices_(sampler.indices()),
      batches_((sampler.size() + batch - 1) / batch) {}

std::int64_t BatchSequence::seen() const {
  return std::min(sampler_.seen() + taken_ * batch_ * sampler_.world_size(), data_.size());
}

BatchSequence::Weighted BatchSequence::next() {
  prefetch();
  auto next = *std::exchange(ahead_, std::nullopt);
  ++taken_;
  input_.hold(next.batch);
  return next;
}

void BatchSequence::prefetch() {
  if (ahead_ || left() == 0) return;
  const Span span(timeline_, Category::data, "data");
  ahead_ = fetch();
}

// In the last batch of an epoch, the sampler lets some ranks repeat a sample. It is left out; where it is the
// rank's only one, its weight is 0.
BatchSequence::Weighted BatchSequence::fetch() const {
  auto own = std::span(indices_).subspan(static_cast<std::size_t>(taken_ * batch_));
  own = own.first(std::min(own.size(), static_cast<std::size_t>(batch_)));
  double weight = 1;
  if (const int repeating = sampler_.repeating_ranks(); repeating > 0 && left() == 1) {
    const auto ranks = sampler_.world_size();
    const bool repeats = sampler_.rank() >= ranks - repeating;
    const auto with_repeats = static_cast<double>(own.size());
    const double different = with_repeats - (repeats ? 1 : 0);
    if (repeats && own.size() > 1) own = own.first(own.size() - 1);
    weight = different / (with_repeats - static_cast<double>(repeating) / ranks);
  }
  return {input_.start(data_.get(own)), weight};
}

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
