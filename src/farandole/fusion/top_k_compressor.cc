#include "farandole/fusion/top_k_compressor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// The message of a rank: k values, the elements after the payload, k indices.
template <class T>
struct Layout {
  std::size_t k;
  std::size_t flags;

  std::size_t flags_at() const { return k * sizeof(T); }
  std::size_t indices_at() const { return (k + flags) * sizeof(T); }
  std::size_t bytes() const { return indices_at() + k * sizeof(std::uint32_t); }
};

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// If this rank has no gradient in this step, its residual is unchanged. If no rank has the gradient, sent
// values would not be used.
template <class T>
bool here(const Bucket& bucket, const T* memory, std::size_t slot) {
  return memory[bucket.payload + slot] != 0;
}

template <class T>
void add_residuals(const Bucket& bucket, Residuals& residuals, T* memory) {
  for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
    if (!here(bucket, memory, s)) continue;
    const auto residual = residuals.of<T>(bucket.slots[s].tensor);
    T* values = memory + bucket.slots[s].offset;
    for (std::size_t i = 0; i < residual.size(); ++i) values[i] += residual[i];
  }
}

// Infinities and NaNs are sent or dropped. As a residual they would spoil all later steps.
template <class T>
void keep_residuals(const Bucket& bucket, Residuals& residuals, const T* memory) {
  for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
    if (!here(bucket, memory, s)) continue;
    const auto residual = residuals.of<T>(bucket.slots[s].tensor);
    const T* values = memory + bucket.slots[s].offset;
    for (std::size_t i = 0; i < residual.size(); ++i)
      residual[i] = values[i] - values[i] == 0 ? values[i] : T{0};
  }
}

// Adds in the order of the ranks, so that all ranks get the same bits.
template <class T>
void add_messages(const std::byte* messages, int ranks, const Layout<T>& layout, std::size_t payload,
                  T factor, T* memory) {
  std::fill_n(memory, payload + layout.flags, T{0});
  for (int r = 0; r < ranks; ++r) {
    const std::byte* message = messages + static_cast<std::size_t>(r) * layout.bytes();
    for (std::size_t i = 0; i < layout.k; ++i)
      memory[load<std::uint32_t>(message + layout.indices_at() + i * sizeof(std::uint32_t))] +=
          factor * load<T>(message + i * sizeof(T));
    for (std::size_t i = 0; i < layout.flags; ++i)
      memory[payload + i] += load<T>(message + layout.flags_at() + i * sizeof(T));
  }
}

constexpr int low_bits = 15;

// The bits of a float's magnitude have the same order as the magnitudes.
template <class T>
std::uint32_t key(T value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value)) & 0x7fffffffu;
}

// The bin that contains the k-th largest number. k becomes its position within the bin.
std::uint32_t bin_from_the_top(const std::vector<std::uint32_t>& histogram, std::size_t& k) {
  auto bin = static_cast<std::uint32_t>(histogram.size() - 1);
  for (; k > histogram[bin]; --bin) k -= histogram[bin];
  return bin;
}

}  // namespace

TopKCompressor::TopKCompressor(const std::vector<TensorSpec>& tensors, double fraction)
    : fraction_(fraction), residuals_(tensors) {
  if (!(fraction > 0 && fraction <= 1))
    throw UserError("top-k compression sends a fraction of the gradients above 0 and at most 1, not " +
                    std::to_string(fraction));
}

void TopKCompressor::allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                               std::size_t bucket, std::byte* memory, ReduceOp op) {
  const auto& what = plan.buckets[bucket];
  if (what.dtype == DType::float32)
    allreduce_sparse(communicator, name, what, reinterpret_cast<float*>(memory), op);
  else if (what.dtype == DType::float64)
    allreduce_sparse(communicator, name, what, reinterpret_cast<double*>(memory), op);
  else
    PlainCompressor::allreduce(communicator, name, plan, bucket, memory, op);
}

template <class T>
void TopKCompressor::allreduce_sparse(Communicator& communicator, std::string_view name, const Bucket& bucket,
                                      T* memory, ReduceOp op) {
  if (bucket.payload > std::numeric_limits<std::uint32_t>::max())
    throw UserError("top-k compression needs buckets of less than 2^32 elements; make the buckets smaller");
  const auto k = static_cast<std::size_t>(std::ceil(fraction_ * static_cast<double>(bucket.payload)));
  const Layout<T> layout{std::min(k, bucket.payload), bucket.count() - bucket.payload};
  add_residuals(bucket, residuals_, memory);
  select_largest(std::span<const T>(memory, bucket.payload), layout.k, indices_);
  message_.resize(layout.bytes());
  for (std::size_t i = 0; i < layout.k; ++i) {
    std::memcpy(message_.data() + i * sizeof(T), &memory[indices_[i]], sizeof(T));
    memory[indices_[i]] = 0;
  }
  std::memcpy(message_.data() + layout.flags_at(), memory + bucket.payload, layout.flags * sizeof(T));
  std::memcpy(message_.data() + layout.indices_at(), indices_.data(), layout.k * sizeof(std::uint32_t));
  keep_residuals(bucket, residuals_, memory);

  const auto ranks = static_cast<std::size_t>(communicator.size);
  messages_.resize(ranks * layout.bytes());
  const std::vector<std::size_t> bytes_by_rank(ranks, layout.bytes());
  communicator.all_gather(name, message_.data(), messages_.data(), bytes_by_rank);
  sent_bytes_ += layout.bytes();
  const T factor = op == ReduceOp::average ? T{1} / static_cast<T>(ranks) : T{1};
  add_messages(messages_.data(), communicator.size, layout, bucket.payload, factor, memory);
}

std::vector<CompressorState> TopKCompressor::state() const {
  std::vector<CompressorState> parts;
  residuals_.save(parts);
  return parts;
}

void TopKCompressor::restore(std::span<const CompressorState> state) {
  residuals_.restore(state);
}

// A radix selection with two digits: first the 16 upper bits, then the 15 lower bits of the numbers with the
// same upper bits as the k-th.
template <class T>
void select_largest(std::span<const T> values, std::size_t k, std::vector<std::uint32_t>& indices) {
  indices.clear();
  if (k > values.size()) k = values.size();
  if (k == 0) return;
  std::vector<std::uint32_t> histogram(std::size_t{1} << (31 - low_bits));
  for (const T value : values) ++histogram[key(value) >> low_bits];
  std::size_t equals = k;
  const std::uint32_t high = bin_from_the_top(histogram, equals);
  histogram.assign(std::size_t{1} << low_bits, 0);
  for (const T value : values)
    if (key(value) >> low_bits == high) ++histogram[key(value) & ((1u << low_bits) - 1)];
  const std::uint32_t last = high << low_bits | bin_from_the_top(histogram, equals);

  indices.reserve(k);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t own = key(values[i]);
    if (own < last || (own == last && equals == 0)) continue;
    if (own == last) --equals;
    indices.push_back(static_cast<std::uint32_t>(i));
  }
}

template void select_largest(std::span<const float>, std::size_t, std::vector<std::uint32_t>&);
template void select_largest(std::span<const double>, std::size_t, std::vector<std::uint32_t>&);

}  // namespace farandole
