#include "farandole/fusion/half_compressor.h"

#include <algorithm>

#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

// float64 is converted through float32 in pieces that stay in the cache.
template <class Step>
void in_pieces(std::size_t count, Step step) {
  constexpr std::size_t piece = 1024;
  float floats[piece];
  for (std::size_t first = 0; first < count; first += piece)
    step(floats, first, std::min(piece, count - first));
}

void narrow_any(const std::byte* from, DType from_dtype, std::byte* to, std::size_t count, DType dtype,
                double factor) {
  if (from_dtype == DType::float32)
    return narrow(reinterpret_cast<const float*>(from), to, count, dtype, static_cast<float>(factor));
  const auto* values = reinterpret_cast<const double*>(from);
  in_pieces(count, [&](float* floats, std::size_t first, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) floats[i] = static_cast<float>(values[first + i] * factor);
    narrow(floats, to + first * size_of(dtype), length, dtype);
  });
}

void widen_any(const std::byte* from, DType dtype, std::byte* to, DType to_dtype, std::size_t count,
               float factor) {
  if (to_dtype == DType::float32) return widen(from, reinterpret_cast<float*>(to), count, dtype, factor);
  auto* values = reinterpret_cast<double*>(to);
  in_pieces(count, [&](float* floats, std::size_t first, std::size_t length) {
    widen(from + first * size_of(dtype), floats, length, dtype, factor);
    std::copy_n(floats, length, values + first);
  });
}

bool is_wide(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64;
}

}  // namespace

std::optional<DType> sent_as(const Compression& compression) {
  switch (compression.kind) {
    case Compression::Kind::float16:
      return DType::float16;
    case Compression::Kind::bfloat16:
      return DType::bfloat16;
    default:
      return std::nullopt;
  }
}

HalfCompressor::HalfCompressor(DType dtype) : dtype_(dtype) {}

std::size_t HalfCompressor::bytes_for(const Bucket& bucket) const {
  return is_wide(bucket.dtype) ? bucket.count() * size_of(dtype_) : bucket.bytes();
}

void HalfCompressor::allreduce(Communicator& communicator, std::string_view name, const Bucket& bucket,
                               std::byte* memory, ReduceOp op) {
  const std::size_t count = bucket.count();
  if (!is_wide(bucket.dtype)) return communicator.allreduce(name, memory, count, bucket.dtype, op);
  std::byte* const halves = halves_.get(communicator, bytes_for(bucket));
  narrow_any(memory, bucket.dtype, halves, count, dtype_, 1.0 / communicator.size);
  communicator.allreduce(name, halves, count, dtype_, ReduceOp::sum);
  widen_any(halves, dtype_, memory, bucket.dtype, count,
            op == ReduceOp::sum ? static_cast<float>(communicator.size) : 1.0f);
}

}  // namespace farandole
