#include "farandole/fusion/gradient_reducer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "farandole/base/clock.h"
#include "farandole/base/dtype.h"
#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/agreement.h"

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

GradientReducer::GradientReducer(BucketPlan plan, Timeline& timeline, std::function<bool()> stop_requested)
    : plan_(std::move(plan)), timeline_(timeline), stop_requested_(std::move(stop_requested)) {
  const auto tensors = plan_.tensors.size();
  place_.resize(tensors);
  marked_.assign(tensors, Gradient::missing);
  present_.assign(tensors, 0);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const auto& bucket = plan_.buckets[b];
    std::byte ignored[sizeof(double)];
    store_flag(ignored, bucket.dtype, 0);  // Throws for other types.
    names_.push_back("bucket " + std::to_string(b));
    ready_names_.push_back(timeline_.intern(names_.back() + " ready"));
    missing_.push_back(bucket.slots.size());
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) place_[bucket.slots[s].tensor] = {b, s};
  }
}

std::byte* GradientReducer::data(std::size_t tensor) const {
  const auto [b, s] = place_[tensor];
  const auto& bucket = plan_.buckets[b];
  return payload(b) + bucket.slots[s].offset * size_of(bucket.dtype);
}

std::size_t GradientReducer::bucket_bytes() const {
  std::size_t bytes = 0;
  for (const auto& bucket : plan_.buckets) bytes += bucket.bytes();
  return bytes;
}

void GradientReducer::set_flag(std::size_t tensor, Gradient gradient) {
  const auto [b, s] = place_[tensor];
  const auto dtype = plan_.buckets[b].dtype;
  const float value = gradient == Gradient::missing  ? 0
                      : gradient == Gradient::finite ? 1
                                                     : std::numeric_limits<float>::quiet_NaN();
  store_flag(flags(b) + s * size_of(dtype), dtype, value);
}

bool GradientReducer::is_set(std::size_t b, const std::byte* its_flags, std::size_t index) const {
  const auto dtype = plan_.buckets[b].dtype;
  return any_bit(its_flags + index * size_of(dtype), dtype);
}

bool GradientReducer::asks_for_stop(const std::byte* flags_of_last_bucket) const {
  return is_set(plan_.buckets.size() - 1, flags_of_last_bucket, plan_.buckets.back().slots.size());
}

bool GradientReducer::has_all(std::size_t b) const {
  const auto& slots = plan_.buckets[b].slots;
  return std::all_of(slots.begin(), slots.end(),
                     [&](const BucketSlot& slot) { return marked_[slot.tensor] != Gradient::missing; });
}

void GradientReducer::learn_presence(std::size_t b) {
  const auto& slots = plan_.buckets[b].slots;
  for (std::size_t s = 0; s < slots.size(); ++s)
    present_[slots[s].tensor] = marked_[slots[s].tensor] != Gradient::missing || is_set(b, flags(b), s);
}

void GradientReducer::started(std::size_t b, std::size_t bytes_to_send) {
  const auto& bucket = plan_.buckets[b];
  sent_bytes_ += bytes_to_send;
  if (stop_requested_ && b + 1 == plan_.buckets.size())
    store_flag(flags(b) + bucket.slots.size() * size_of(bucket.dtype), bucket.dtype,
               stop_requested_() ? 1 : 0);
}

std::optional<std::size_t> GradientReducer::first_nonfinite_here() const {
  for (const auto& bucket : plan_.buckets)
    for (const auto& slot : bucket.slots)
      if (here_[slot.tensor] == Gradient::nonfinite) return slot.tensor;
  return std::nullopt;
}

void GradientReducer::mark(std::size_t tensor, Gradient gradient) {
  const auto& spec = plan_.tensors[tensor];
  if (marked_[tensor] != Gradient::missing)
    throw Error("the gradient of " + spec.name +
                " was ready twice in one step; set backward_passes_per_step to the number of backward calls "
                "before step()");
  {
    const std::lock_guard progress(progress_);
    marked_[tensor] = gradient;
  }
  if (first_step_) first_order_.push_back(tensor);
  set_flag(tensor, gradient);
  --missing_[bucket_of(tensor)];
}

void GradientReducer::push_full_buckets() {
  while (pushed_ < missing_.size() && missing_[pushed_] == 0) {
    timeline_.instant(ready_names_[pushed_], now_ns(), plan_.buckets[pushed_].bytes());
    push(pushed_);
    const std::lock_guard progress(progress_);
    ++pushed_;
  }
}

void GradientReducer::finish(const std::function<void(std::size_t)>& reduced) {
  for (std::size_t tensor = 0; tensor < marked_.size(); ++tensor) {
    if (marked_[tensor] != Gradient::missing) continue;
    if (first_step_) first_order_.push_back(tensor);
    set_zero(tensor);
    set_flag(tensor, Gradient::missing);
  }
  std::unique_lock lock(mutex_);
  std::fill(missing_.begin(), missing_.end(), 0);
  push_full_buckets();
  lock.unlock();
  first_nonfinite_.reset();
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    await(b);
    if (reduced) reduced(b);
  }
  end_step();
  lock.lock();
  first_step_ = false;
  const std::lock_guard progress(progress_);
  pushed_ = 0;
  for (std::size_t b = 0; b < missing_.size(); ++b) missing_[b] = plan_.buckets[b].slots.size();
  here_ = marked_;
  std::fill(marked_.begin(), marked_.end(), Gradient::missing);
}

std::span<const std::size_t> GradientReducer::first_order() const {
  if (first_step_) return {};
  return first_order_;
}

std::optional<CollectiveRegistry::Meaning> GradientReducer::explain(std::string_view collective) const {
  const std::unique_lock progress(progress_, std::try_to_lock);
  if (!progress) return std::nullopt;
  const auto index = collective.empty()
                         ? pushed_
                         : static_cast<std::size_t>(std::ranges::find(names_, collective) - names_.begin());
  if (index >= names_.size()) return std::nullopt;
  CollectiveRegistry::Meaning meaning;
  for (const auto& slot : plan_.buckets[index].slots) {
    const auto& tensor = plan_.tensors[slot.tensor].name;
    meaning.contents.push_back(tensor);
    if (marked_[slot.tensor] == Gradient::missing) meaning.awaited.push_back(tensor);
  }
  return meaning;
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
