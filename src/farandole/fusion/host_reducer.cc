#include "farandole/fusion/host_reducer.h"

#include <cstring>
#include <utility>

#include "farandole/base/dtype.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {

HostReducer::HostReducer(Communicator& communicator, BucketPlan the_plan, ReduceOp op, Timeline& the_timeline,
                         HostReducerOptions options)
    : GradientReducer(std::move(the_plan), the_timeline, std::move(options.stop_requested)),
      communicator_(communicator),
      op_(op),
      finds_nonfinite_(options.finds_nonfinite),
      sharing_(options.sharing) {
  if (options.compressed) compressor_.emplace(*options.compressed);
  for (const auto& bucket : plan().buckets) memory_.push_back(communicator_.allocate(bucket.bytes()));
  auto* const nonblocking = communicator_.nonblocking_allreduce();
  if (nonblocking != nullptr && !compressor_ && options.reduced_by == ReducedBy::caller)
    queue_ = reduce_from_caller([this](std::size_t b) { start(b); }, *nonblocking, timeline());
  else
    queue_ = reduce_on_thread([this](std::size_t b) { reduce(b); }, communicator_, timeline());
}

HostReducer::~HostReducer() = default;

std::byte* HostReducer::payload(std::size_t b) const {
  return memory_[b].get();
}

std::byte* HostReducer::flags(std::size_t b) const {
  if (borrowed_ == b) return const_cast<std::byte*>(flags_of_ranks_.data());
  const auto& bucket = plan().buckets[b];
  return payload(b) + bucket.payload * size_of(bucket.dtype);
}

// The gradient was written just now, so that it is read from the cache.
void HostReducer::mark_ready(std::size_t tensor) {
  const auto& spec = plan().tensors[tensor];
  const bool finite = !finds_nonfinite_ || has_only_finite({data(tensor), spec.bytes()}, spec.dtype);
  const std::lock_guard lock(mutex_);
  mark(tensor, finite ? Gradient::finite : Gradient::nonfinite);
  push_full_buckets();
  queue_->poll();
}

void HostReducer::set_zero(std::size_t tensor) {
  std::memset(data(tensor), 0, plan().tensors[tensor].bytes());
}

void HostReducer::push(std::size_t) {
  if (sharing_ == nullptr) queue_->push();
}

void HostReducer::start(std::size_t b) {
  const auto& bucket = plan().buckets[b];
  started(b, bucket.bytes());
  communicator_.nonblocking_allreduce()->start(name(b), payload(b), bucket.count(), bucket.dtype, op_);
}

void HostReducer::reduce(std::size_t b) {
  const auto& bucket = plan().buckets[b];
  started(b, compressor_ ? compressor_->bytes_for(bucket) : bucket.bytes());
  if (compressor_)
    compressor_->allreduce(communicator_, name(b), bucket, payload(b), op_);
  else
    communicator_.allreduce(name(b), payload(b), bucket.count(), bucket.dtype, op_);
}

void HostReducer::await(std::size_t b) {
  if (left_to_caller_) {
    borrow(b);
  } else {
    if (sharing_ != nullptr) queue_->push();
    queue_->await(b + 1);
  }
  learn_presence(b);
  if (finds_nonfinite_) look_for_nonfinite(b);
}

// Other ranks still read the flags behind this rank's payload, so the sums lie elsewhere.
void HostReducer::borrow(std::size_t b) {
  if (borrowed_) sharing_->give_back();
  borrowed_.reset();
  const auto& bucket = plan().buckets[b];
  started(b, bucket.bytes());
  {
    const Span span(timeline(), Category::wait, "wait for gradients");
    buckets_of_ranks_ = sharing_->borrow(name(b), payload(b), bucket.count(), bucket.dtype, op_);
  }
  const std::size_t element = size_of(bucket.dtype), behind = bucket.payload * element;
  std::vector<const std::byte*> by_rank;
  for (const auto* const memory : buckets_of_ranks_) by_rank.push_back(memory + behind);
  flags_of_ranks_.resize((bucket.count() - bucket.payload) * element);
  std::byte* const sums = flags_of_ranks_.data();
  farandole::reduce(by_rank, {&sums, 1}, bucket.count() - bucket.payload, bucket.dtype, op_);
  borrowed_ = b;
}

// Only compression makes infinities of numbers that are far from the largest ones.
void HostReducer::look_for_nonfinite(std::size_t b) {
  if (first_nonfinite_) return;
  const auto& bucket = plan().buckets[b];
  const std::size_t size = size_of(bucket.dtype);
  for (std::size_t s = 0; s < bucket.slots.size() && !first_nonfinite_; ++s) {
    const auto tensor = bucket.slots[s].tensor;
    if (!has_only_finite({flags(b) + s * size, size}, bucket.dtype) ||
        (compressor_ && !has_only_finite({data(tensor), plan().tensors[tensor].bytes()}, bucket.dtype)))
      first_nonfinite_ = tensor;
  }
}

void HostReducer::end_step() {
  if (borrowed_) sharing_->give_back();
  queue_->restart();
  if (!plan().buckets.empty()) stopping_ = asks_for_stop(flags(plan().buckets.size() - 1));
  borrowed_.reset();
  left_to_caller_ = false;
}

}  // namespace farandole
