#include "farandole/fusion/gradient_reducer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <string>
#include <utility>

#include "farandole/base/dtype.h"
#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/kernels/float16.h"

namespace farandole {
namespace {

// `value` is 0, 1 or NaN.
void store_flag(std::byte* at, DType dtype, float value) {
  const auto store = [&](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  const auto store_one_of = [&](std::uint16_t one, std::uint16_t nan) {
    store(std::isnan(value) ? nan : value == 0 ? std::uint16_t{0} : one);
  };
  switch (dtype) {
    case DType::float16:
      return store_one_of(0x3c00, 0x7e00);
    case DType::bfloat16:
      return store_one_of(0x3f80, 0x7fc0);
    case DType::float32:
      return store(value);
    case DType::float64:
      return store(static_cast<double>(value));
    default:
      throw UserError("gradients of type " + std::string(name_of(dtype)) + " cannot be reduced");
  }
}

// Works for sums and averages of ones, zeros and NaNs: the result is not zero unless the value was
// zero on every rank.
bool any_bit(const std::byte* at, DType dtype) {
  for (std::size_t i = 0; i < size_of(dtype); ++i)
    if (at[i] != std::byte{0}) return true;
  return false;
}

// One line per tensor in the order of the plan, then the layout of the buckets.
std::string describe(const BucketPlan& plan) {
  std::string text;
  for (const auto& tensor : plan.tensors) text += tensor.describe() + "\n";
  for (const auto& bucket : plan.buckets)
    text += fmt::format("bucket of {} tensors, {} elements {}\n", bucket.slots.size(), bucket.payload,
                        name_of(bucket.dtype));
  return text;
}

}  // namespace

GradientReducer::GradientReducer(Communicator& communicator, BucketPlan plan, ReduceOp op, Timeline& timeline,
                                 std::optional<DType> compressed, std::function<bool()> stop_requested,
                                 BucketDevice* device)
    : communicator_(communicator),
      plan_(std::move(plan)),
      op_(op),
      timeline_(timeline),
      stop_requested_(std::move(stop_requested)),
      device_(device) {
  if (compressed) compressor_.emplace(*compressed);
  place_.resize(plan_.tensors.size());
  for (const auto& tensor : plan_.tensors)
    gradient_names_.push_back(timeline_.intern("gradient " + tensor.name));
  marked_.assign(plan_.tensors.size(), Gradient::missing);
  present_.assign(plan_.tensors.size(), 0);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const auto& bucket = plan_.buckets[b];
    const auto name = "bucket " + std::to_string(b);
    auto& state = buckets_.emplace_back(
        State{name, timeline_.intern(name + " ready"), {}, nullptr, bucket.slots.size()});
    if (device_ != nullptr)
      state.there = device_->make(bucket, op_);
    else
      state.memory = communicator_.allocate(bucket.bytes());
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      place_[bucket.slots[s].tensor] = {b, s};
      set_flag(bucket.slots[s].tensor,
               Gradient::missing);  // also rejects element types that gradients cannot have
    }
  }
  if (device_ != nullptr)
    queue_ = reduce_on_device([this](std::size_t b) { start_on_device(b); },
                              [this](std::size_t b) { buckets_[b].there->hold(); });
  else if (auto* const nonblocking = communicator_.nonblocking_allreduce();
           nonblocking != nullptr && !compressor_)
    queue_ = reduce_from_caller([this](std::size_t b) { start(b); }, *nonblocking, timeline);
  else
    queue_ = reduce_on_thread([this](std::size_t b) { reduce(b); }, timeline);
}

GradientReducer::~GradientReducer() = default;

std::byte* GradientReducer::data(std::size_t tensor) {
  const auto [b, s] = place_[tensor];
  const auto& bucket = plan_.buckets[b];
  auto* const start = device_ != nullptr ? buckets_[b].there->data() : buckets_[b].memory.get();
  return start + bucket.slots[s].offset * size_of(bucket.dtype);
}

std::size_t GradientReducer::bucket_bytes() const {
  std::size_t bytes = 0;
  for (const auto& bucket : plan_.buckets) bytes += bucket.bytes();
  return bytes;
}

std::byte* GradientReducer::flag(std::size_t b, std::size_t index) const {
  const auto& bucket = plan_.buckets[b];
  auto* const flags = device_ != nullptr ? buckets_[b].there->flags(turn_)
                                         : buckets_[b].memory.get() + bucket.payload * size_of(bucket.dtype);
  return flags + index * size_of(bucket.dtype);
}

void GradientReducer::set_flag(std::size_t tensor, Gradient gradient) {
  const auto [b, s] = place_[tensor];
  const float value = gradient == Gradient::missing  ? 0
                      : gradient == Gradient::finite ? 1
                                                     : std::numeric_limits<float>::quiet_NaN();
  store_flag(flag(b, s), plan_.buckets[b].dtype, value);
}

// Some rank has a gradient if this one has.
void GradientReducer::learn_presence(std::size_t b) {
  const auto& bucket = plan_.buckets[b];
  const bool has_all = device_ != nullptr &&
                       std::all_of(bucket.slots.begin(), bucket.slots.end(), [&](const BucketSlot& slot) {
                         return marked_[slot.tensor] != Gradient::missing;
                       });
  if (device_ != nullptr && !has_all) {
    const Span span(timeline_, Category::wait, "wait for flags");
    buckets_[b].there->await(turn_);
  }
  for (std::size_t s = 0; s < bucket.slots.size(); ++s)
    present_[bucket.slots[s].tensor] = has_all || any_bit(flag(b, s), bucket.dtype);
}

void GradientReducer::ask_for_stop(std::size_t b) {
  const auto& bucket = plan_.buckets[b];
  if (stop_requested_ && b + 1 == buckets_.size())
    store_flag(flag(b, bucket.slots.size()), bucket.dtype, stop_requested_() ? 1 : 0);
}

float* GradientReducer::found_nonfinite(std::size_t bucket) const {
  return device_ != nullptr ? buckets_[bucket].there->found_nonfinite() : nullptr;
}

// Only compression makes infinities of numbers that are far from the largest ones.
void GradientReducer::look_for_nonfinite(std::size_t b) {
  if (first_nonfinite_ || device_ != nullptr) return;
  const auto& bucket = plan_.buckets[b];
  const std::size_t size = size_of(bucket.dtype);
  for (std::size_t s = 0; s < bucket.slots.size() && !first_nonfinite_; ++s) {
    const auto tensor = bucket.slots[s].tensor;
    if (!has_only_finite({flag(b, s), size}, bucket.dtype) ||
        (compressor_ && !has_only_finite({data(tensor), plan_.tensors[tensor].bytes()}, bucket.dtype)))
      first_nonfinite_ = tensor;
  }
}

std::optional<std::size_t> GradientReducer::first_nonfinite_here() const {
  for (const auto& bucket : plan_.buckets)
    for (const auto& slot : bucket.slots)
      if (here_[slot.tensor] == Gradient::nonfinite) return slot.tensor;
  return std::nullopt;
}

// The gradient was written just now, so that it is read from the cache.
void GradientReducer::mark_ready(std::size_t tensor, const std::byte* from) {
  const auto& spec = plan_.tensors[tensor];
  const bool finite = device_ != nullptr || has_only_finite({data(tensor), spec.bytes()}, spec.dtype);
  const std::lock_guard lock(mutex_);
  if (marked_[tensor] != Gradient::missing)
    throw Error("the gradient of " + plan_.tensors[tensor].name +
                " was ready twice in one step; set backward_passes_per_step to the number of backward calls "
                "before step()");
  const auto gradient = finite ? Gradient::finite : Gradient::nonfinite;
  {
    const std::lock_guard progress(progress_);
    marked_[tensor] = gradient;
  }
  if (device_ != nullptr) {
    auto& bucket = buckets_[place_[tensor].first];
    if (from != nullptr) bucket.elsewhere.push_back({from, data(tensor), spec.bytes()});
    bucket.there->written();
  }
  if (notes_gradients(timeline_.step())) [[unlikely]]
    note(tensor);
  if (first_step_) first_order_.push_back(tensor);
  set_flag(tensor, gradient);
  --buckets_[place_[tensor].first].missing;
  push_full_buckets();
  queue_->poll();
}

void GradientReducer::note(std::size_t tensor) {
  timeline_.instant(gradient_names_[tensor], now_ns(), plan_.tensors[tensor].bytes());
}

void GradientReducer::push_full_buckets() {
  while (pushed_ < buckets_.size() && buckets_[pushed_].missing == 0) {
    timeline_.instant(buckets_[pushed_].ready, now_ns(), plan_.buckets[pushed_].bytes());
    queue_->push();
    const std::lock_guard progress(progress_);
    ++pushed_;
  }
}

void GradientReducer::finish(const std::function<void(std::size_t)>& reduced) {
  for (std::size_t tensor = 0; tensor < marked_.size(); ++tensor) {
    if (marked_[tensor] != Gradient::missing) continue;
    if (first_step_) first_order_.push_back(tensor);
    if (device_ != nullptr) {
      auto& bucket = *buckets_[place_[tensor].first].there;
      bucket.zero(data(tensor), plan_.tensors[tensor].bytes());
      bucket.written();
    } else {
      std::memset(data(tensor), 0, plan_.tensors[tensor].bytes());
    }
    set_flag(tensor, Gradient::missing);
  }
  std::unique_lock lock(mutex_);
  for (auto& bucket : buckets_) bucket.missing = 0;
  push_full_buckets();
  lock.unlock();
  first_nonfinite_.reset();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    queue_->await(b + 1);
    learn_presence(b);
    look_for_nonfinite(b);
    if (reduced) reduced(b);
  }
  if (device_ != nullptr) {
    settle();  // the step before this one
    if (const auto carried = std::exchange(carried_, std::nullopt)) {
      if (!first_nonfinite_) first_nonfinite_ = carried;
      device_->forget_nonfinite();
    }
    unsettled_ = turn_;
    turn_ = 1 - turn_;
  } else if (!buckets_.empty()) {
    stopping_ = asks_for_stop();
  }
  lock.lock();
  first_step_ = false;
  queue_->restart();
  const std::lock_guard progress(progress_);
  pushed_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].missing = plan_.buckets[b].slots.size();
  here_ = marked_;
  std::fill(marked_.begin(), marked_.end(), Gradient::missing);
}

bool GradientReducer::asks_for_stop() const {
  const auto& bucket = plan_.buckets.back();
  return any_bit(flag(buckets_.size() - 1, bucket.slots.size()), bucket.dtype);
}

bool GradientReducer::can_multiply() const {
  return device_ != nullptr &&
         std::all_of(plan_.buckets.begin(), plan_.buckets.end(), [](const Bucket& bucket) {
           return bucket.dtype == DType::float32 || bucket.dtype == DType::float64;
         });
}

void GradientReducer::settle() {
  if (!unsettled_) return;
  await_unsettled();
  if (first_nonfinite_) device_->forget_nonfinite();
}

void GradientReducer::discard() {
  if (device_ == nullptr) return;
  // Without unsettled_, what is known is about the gradients that are discarded.
  const auto earlier = unsettled_ ? first_nonfinite_ : std::nullopt;
  first_nonfinite_.reset();
  settle();
  first_nonfinite_.reset();
  carried_ = earlier;
}

// The device goes on leaving out updates until the next reducer has reported the reason.
GradientReducer::Unreported GradientReducer::retire() {
  if (device_ == nullptr) return {};
  first_nonfinite_.reset();
  await_unsettled();
  return {first_nonfinite_ ? first_nonfinite_ : carried_, stopping_};
}

void GradientReducer::report_later(const Unreported& unreported) {
  carried_ = unreported.nonfinite;
  stopping_ = unreported.stopping;
}

void GradientReducer::await_unsettled() {
  if (!unsettled_ || buckets_.empty()) return;
  const auto next = std::exchange(turn_, *unsettled_);
  const Span span(timeline_, Category::wait, "wait for the last step");
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto element = buckets_[b].there->await(turn_);
    if (!element || first_nonfinite_) continue;
    for (const auto& slot : plan_.buckets[b].slots)
      if (slot.offset <= *element) first_nonfinite_ = slot.tensor;
  }
  stopping_ = asks_for_stop();
  turn_ = next;
  unsettled_.reset();
}

std::span<const std::size_t> GradientReducer::first_order() const {
  if (first_step_) return {};
  return first_order_;
}

void GradientReducer::reduce(std::size_t b) {
  const auto& bucket = plan_.buckets[b];
  const auto& name = buckets_[b].name;
  std::byte* const memory = buckets_[b].memory.get();
  ask_for_stop(b);
  sent_bytes_ += compressor_ ? compressor_->bytes_for(bucket) : bucket.bytes();
  if (compressor_)
    compressor_->allreduce(communicator_, name, bucket, memory, op_);
  else
    communicator_.allreduce(name, memory, bucket.count(), bucket.dtype, op_);
}

std::optional<CollectiveRegistry::Meaning> GradientReducer::explain(std::string_view collective) const {
  const std::unique_lock progress(progress_, std::try_to_lock);
  if (!progress) return std::nullopt;
  std::size_t index = collective.empty() ? pushed_ : 0;
  if (!collective.empty())
    while (index < buckets_.size() && buckets_[index].name != collective) ++index;
  if (index >= buckets_.size()) return std::nullopt;
  CollectiveRegistry::Meaning meaning;
  for (const auto& slot : plan_.buckets[index].slots) {
    const auto& name = plan_.tensors[slot.tensor].name;
    meaning.contents.push_back(name);
    if (marked_[slot.tensor] == Gradient::missing) meaning.awaited.push_back(name);
  }
  return meaning;
}

void GradientReducer::start_on_device(std::size_t b) {
  const auto& bucket = plan_.buckets[b];
  auto& state = buckets_[b];
  ask_for_stop(b);
  sent_bytes_ += bucket.bytes();
  state.there->start(turn_, state.name, state.elsewhere, factor_);
  state.elsewhere.clear();
}

void GradientReducer::start(std::size_t b) {
  const auto& bucket = plan_.buckets[b];
  ask_for_stop(b);
  sent_bytes_ += bucket.bytes();
  communicator_.nonblocking_allreduce()->start(buckets_[b].name, buckets_[b].memory.get(), bucket.count(),
                                               bucket.dtype, op_);
}

void check_plan_agreement(Communicator& communicator, const BucketPlan& plan) {
  constexpr std::size_t most_rows = 10;
  auto rows = find_disagreements(communicator, "bucket plan", describe(plan));
  if (rows.empty()) return;
  rows.resize(std::min(rows.size(), most_rows));
  std::string table;
  for (const auto& row : rows)
    for (const auto& [text, ranks] : row.variants)
      table += fmt::format("\n  #{:<4} {:<17} {}", row.line, describe_ranks(ranks), text);
  throw UserError("the ranks do not train the same tensors; build the same model on every rank:" + table);
}

}  // namespace farandole
