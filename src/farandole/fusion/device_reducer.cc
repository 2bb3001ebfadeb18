#include "farandole/fusion/device_reducer.h"

#include <algorithm>
#include <utility>

namespace farandole {

DeviceReducer::DeviceReducer(BucketDevice& device, BucketPlan the_plan, ReduceOp op, Timeline& the_timeline,
                             std::function<bool()> stop_requested, Divided divided)
    : GradientReducer(std::move(the_plan), the_timeline, std::move(stop_requested)),
      device_(device),
      divided_(divided) {
  for (const auto& bucket : plan().buckets) buckets_.push_back({device_.make(bucket, op, divided)});
}

DeviceReducer::~DeviceReducer() = default;

void DeviceReducer::mark_ready(std::size_t tensor) {
  mark_ready_elsewhere(tensor, nullptr);
}

void DeviceReducer::mark_ready_elsewhere(std::size_t tensor, const std::byte* from) {
  const std::lock_guard lock(mutex_);
  mark(tensor, Gradient::finite);
  auto& bucket = buckets_[bucket_of(tensor)];
  if (from != nullptr) bucket.elsewhere.push_back({from, data(tensor), plan().tensors[tensor].bytes()});
  bucket.memory->written();
  push_full_buckets();
}

void DeviceReducer::set_zero(std::size_t tensor) {
  auto& memory = *buckets_[bucket_of(tensor)].memory;
  memory.zero(data(tensor), plan().tensors[tensor].bytes());
  memory.written();
}

void DeviceReducer::push(std::size_t b) {
  auto& bucket = buckets_[b];
  started(b, plan().buckets[b].bytes());
  bucket.memory->start(set_, name(b), bucket.elsewhere, factor_);
  bucket.elsewhere.clear();
}

void DeviceReducer::await(std::size_t b) {
  auto& memory = *buckets_[b].memory;
  memory.hold();
  if (!has_all(b)) {
    const Span span(timeline(), Category::wait, "wait for flags");
    memory.await(set_);
  }
  learn_presence(b);
}

void DeviceReducer::gather() {
  if (divided_ == Divided::no) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto& bucket = plan().buckets[b];
    const auto element = size_of(bucket.dtype);
    device_.gather("gradients of " + name(b), buckets_[b].memory->data(),
                   device_.part_of(bucket.payload, element) * element);
  }
  device_.hold();
}

void DeviceReducer::end_step() {
  await_results();  // of the step before this one
  if (const auto carried = std::exchange(carried_, std::nullopt)) {
    if (!first_nonfinite_) first_nonfinite_ = carried;
    device_.forget_nonfinite();
  }
  unread_ = set_;
  set_ = 1 - set_;
}

void DeviceReducer::await_results() {
  if (!unread_) return;
  await_unread();
  if (first_nonfinite_) device_.forget_nonfinite();
}

void DeviceReducer::discard() {
  // Without unread_, what is known is about the gradients that are discarded.
  const auto earlier = unread_ ? first_nonfinite_ : std::nullopt;
  first_nonfinite_.reset();
  await_results();
  first_nonfinite_.reset();
  carried_ = earlier;
}

// The device goes on leaving out updates until the next reducer has reported the reason.
DeviceReducer::Unreported DeviceReducer::retire() {
  first_nonfinite_.reset();
  await_unread();
  return {first_nonfinite_ ? first_nonfinite_ : carried_, stopping_};
}

void DeviceReducer::report_later(const Unreported& unreported) {
  carried_ = unreported.nonfinite;
  stopping_ = unreported.stopping;
}

void DeviceReducer::await_unread() {
  if (!unread_ || buckets_.empty()) return;
  const int set = *unread_;
  const Span span(timeline(), Category::wait, "wait for the last step");
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto element = buckets_[b].memory->await(set);
    if (!element || first_nonfinite_) continue;
    for (const auto& slot : plan().buckets[b].slots)
      if (slot.offset <= *element) first_nonfinite_ = slot.tensor;
  }
  stopping_ = asks_for_stop(buckets_.back().memory->flags(set));
  unread_.reset();
}

bool DeviceReducer::can_multiply() const {
  const auto& buckets = plan().buckets;
  return std::all_of(buckets.begin(), buckets.end(), [](const Bucket& bucket) {
    return bucket.dtype == DType::float32 || bucket.dtype == DType::float64;
  });
}

}  // namespace farandole
