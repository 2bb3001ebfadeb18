#include "farandole/train/compression/powersgd_compressor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <algorithm>
#include <c10/core/GradMode.h>
#include <cstring>
#include <fmt/format.h>
#include <torch/utils.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

at::TensorOptions options_of(DType dtype) {
  return at::TensorOptions().dtype(dtype == DType::float64 ? at::kDouble : at::kFloat);
}

bool is_finite(const at::Tensor& tensor) {
  return at::isfinite(tensor).all().item<bool>();
}

std::int64_t rows_of(const TensorSpec& tensor) {
  return tensor.shape.front();
}

std::int64_t columns_of(const TensorSpec& tensor) {
  return static_cast<std::int64_t>(tensor.count()) / rows_of(tensor);
}

// Returns whether a product of this rank has fewer elements than the tensor.
bool is_worth_it(const TensorSpec& tensor, std::int64_t rank) {
  if (tensor.dtype != DType::float32 && tensor.dtype != DType::float64) return false;
  if (tensor.shape.size() < 2 || tensor.count() == 0) return false;
  const auto rows = rows_of(tensor), columns = columns_of(tensor);
  return (rows + columns) * std::min({rank, rows, columns}) < rows * columns;
}

void orthogonalise(at::Tensor& p) {
  if (is_finite(p)) p.copy_(std::get<0>(at::linalg_qr(p)));
}

}  // namespace

// Views the memory of the bucket and both messages as matrices.
struct PowerSgdCompressor::Step {
  struct Matrix {
    std::size_t tensor;
    bool here;            // This rank has the gradient.
    at::Tensor gradient;  // Memory of the bucket.
    at::Tensor p, q;      // Views of the messages.
  };

  Step(PowerSgdCompressor& the_compressor, const Bucket& the_bucket, std::byte* the_memory)
      : compressor(the_compressor), bucket(the_bucket), memory(the_memory), size(size_of(the_bucket.dtype)) {
    const std::vector<std::byte> absent(size);
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      const auto& slot = bucket.slots[s];
      if (!compressor.compresses(slot.tensor)) {
        plain.push_back(slot);
        continue;
      }
      const auto& spec = compressor.tensors_[slot.tensor];
      const bool here = std::memcmp(memory + (bucket.payload + s) * size, absent.data(), size) != 0;
      matrices.push_back({slot.tensor,
                          here,
                          at_memory(memory + slot.offset * size, rows_of(spec), columns_of(spec)),
                          {},
                          {}});
    }
    plain.push_back({0, bucket.payload, bucket.count() - bucket.payload});  // The elements after the payload.
  }

  at::Tensor at_memory(std::byte* data, std::int64_t rows, std::int64_t columns) const {
    return at::from_blob(data, {rows, columns}, options_of(bucket.dtype));
  }
  at::Tensor residual(const Matrix& matrix) const {
    auto* data = bucket.dtype == DType::float64
                     ? reinterpret_cast<std::byte*>(compressor.residuals_.of<double>(matrix.tensor).data())
                     : reinterpret_cast<std::byte*>(compressor.residuals_.of<float>(matrix.tensor).data());
    return at_memory(data, matrix.gradient.size(0), matrix.gradient.size(1));
  }

  // Number of elements in the message with all P and the uncompressed tensors.
  std::size_t p_count() const {
    std::size_t count = 0;
    for (const auto& matrix : matrices)
      count += static_cast<std::size_t>(matrix.gradient.size(0) * compressor.factors_[matrix.tensor].size(1));
    for (const auto& slot : plain) count += slot.count;
    return count;
  }
  std::size_t q_count() const {
    std::size_t count = 0;
    for (const auto& matrix : matrices)
      count += static_cast<std::size_t>(compressor.factors_[matrix.tensor].numel());
    return count;
  }

  void write_p(std::byte* to) {
    for (auto& matrix : matrices) {
      if (matrix.here) matrix.gradient.add_(residual(matrix));
      const auto& q = compressor.factors_[matrix.tensor];
      matrix.p = at_memory(to, matrix.gradient.size(0), q.size(1));
      at::mm_out(matrix.p, matrix.gradient, q);
      to += static_cast<std::size_t>(matrix.p.numel()) * size;
    }
    for (const auto& slot : plain) {
      std::memcpy(to, memory + slot.offset * size, slot.count * size);
      to += slot.count * size;
    }
  }
  // Makes orthonormal copies of P, because the memory of the message is used for Q next.
  void read_p(const std::byte* from) {
    for (auto& matrix : matrices) {
      from += static_cast<std::size_t>(matrix.p.numel()) * size;
      matrix.p = matrix.p.clone();
      orthogonalise(matrix.p);
    }
    for (const auto& slot : plain) {
      std::memcpy(memory + slot.offset * size, from, slot.count * size);
      from += slot.count * size;
    }
  }
  void write_q(std::byte* to) {
    for (auto& matrix : matrices) {
      matrix.q = at_memory(to, matrix.gradient.size(1), matrix.p.size(1));
      at::mm_out(matrix.q, matrix.gradient.t(), matrix.p);
      to += static_cast<std::size_t>(matrix.q.numel()) * size;
      if (!matrix.here) continue;  // If no rank has the gradient, the result is not used.
      auto left_out = residual(matrix);
      left_out.copy_(matrix.gradient);
      left_out.addmm_(matrix.p, matrix.q.t(), 1, -1);
      if (!is_finite(left_out)) left_out.zero_();  // It would make all later steps non-finite.
    }
  }
  void read_q() {
    for (auto& matrix : matrices) {
      at::mm_out(matrix.gradient, matrix.p, matrix.q.t());
      // A Q of zeros or NaN is useless as a start for the next step.
      auto& next = compressor.factors_[matrix.tensor];
      if (!is_finite(matrix.q))
        next = compressor.first_factor(matrix.tensor);
      else if (matrix.q.any().item<bool>())
        next.copy_(matrix.q);
    }
  }

  PowerSgdCompressor& compressor;
  const Bucket& bucket;
  std::byte* const memory;
  const std::size_t size;  // Bytes of an element.
  std::vector<Matrix> matrices;
  std::vector<BucketSlot> plain;
};

PowerSgdCompressor::PowerSgdCompressor(const std::vector<TensorSpec>& tensors, int rank)
    : tensors_(tensors), rank_(rank), residuals_(tensors), factors_(tensors.size()) {
  if (rank < 1) throw UserError(fmt::format("PowerSGD's rank is {}; it must be at least 1", rank));
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (is_worth_it(tensors_[i], rank)) factors_[i] = first_factor(i);
}

at::Tensor PowerSgdCompressor::first_factor(std::size_t tensor) const {
  const auto& spec = tensors_[tensor];
  const auto columns = columns_of(spec);
  return at::randn({columns, std::min({std::int64_t{rank_}, rows_of(spec), columns})},
                   at::detail::createCPUGenerator(tensor + 1), options_of(spec.dtype));
}

void PowerSgdCompressor::allreduce(Communicator& communicator, std::string_view name, const BucketPlan& plan,
                                   std::size_t bucket, std::byte* memory, ReduceOp op) {
  const c10::NoGradGuard no_grad;
  const auto& what = plan.buckets[bucket];
  Step step(*this, what, memory);
  if (step.matrices.empty()) return PlainCompressor::allreduce(communicator, name, plan, bucket, memory, op);
  const std::size_t p_count = step.p_count(), q_count = step.q_count();
  auto* data = message_.get(communicator, std::max(p_count, q_count) * step.size);
  step.write_p(data);
  communicator.allreduce(name, data, p_count, what.dtype, op);
  step.read_p(data);
  step.write_q(data);
  communicator.allreduce(name, data, q_count, what.dtype, op);
  step.read_q();
  sent_bytes_ += (p_count + q_count) * step.size;
}

std::vector<CompressorState> PowerSgdCompressor::state() const {
  std::vector<CompressorState> parts;
  residuals_.save(parts);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!compresses(i)) continue;
    const auto* first = static_cast<const std::byte*>(factors_[i].const_data_ptr());
    parts.push_back({"powersgd_q/" + tensors_[i].name,
                     tensors_[i].dtype,
                     factors_[i].sizes().vec(),
                     {first, first + factors_[i].nbytes()}});
  }
  return parts;
}

void PowerSgdCompressor::restore(std::span<const CompressorState> state) {
  residuals_.restore(state);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!compresses(i)) continue;
    const auto* part =
        find_state(state, "powersgd_q/" + tensors_[i].name, tensors_[i].dtype, factors_[i].sizes().vec());
    factors_[i] = first_factor(i);
    if (part != nullptr) std::memcpy(factors_[i].data_ptr(), part->bytes.data(), part->bytes.size());
  }
}

}  // namespace farandole
