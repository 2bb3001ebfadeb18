#include "farandole/train/gradients/sparse_gradients.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <torch/utils.h>

#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

using torch::Tensor;

constexpr std::int64_t none = -1;  // Number of rows if there is no gradient.

// Converts to the form that autograd uses for embeddings: row numbers [1, n] and values [n, …].
Tensor as_rows(const Tensor& gradient) {
  if (gradient.is_sparse() && gradient.sparse_dim() == 1) return gradient.coalesce();
  return (gradient.is_sparse() ? gradient.to_dense() : gradient).to_sparse(1).coalesce();
}

bool has_finite_rows(const Tensor& rows) {
  return torch::isfinite(rows.values()).all().item<bool>();
}

// The part of one rank in the gathered memory: row numbers, then values, padded.
std::size_t index_bytes(std::int64_t rows) {
  return static_cast<std::size_t>(rows) * sizeof(std::int64_t);
}
std::size_t part_bytes(std::int64_t rows, std::size_t row_bytes) {
  if (rows == none) return 0;
  return (index_bytes(rows) + static_cast<std::size_t>(rows) * row_bytes + 63) / 64 * 64;
}

}  // namespace

SparseGradients::SparseGradients(Communicator& communicator, std::vector<std::string> names,
                                 std::vector<Tensor> parameters, std::function<bool()> stop_requested)
    : communicator_(communicator),
      names_(std::move(names)),
      parameters_(std::move(parameters)),
      stop_requested_(std::move(stop_requested)) {}

SparseGradients::~SparseGradients() = default;

void SparseGradients::reduce(double divisor) {
  if (parameters_.empty()) return;
  const torch::NoGradGuard no_grad;
  first_nonfinite_.reset();
  first_nonfinite_here_.reset();
  const auto count = parameters_.size(), ranks = static_cast<std::size_t>(communicator_.size);
  std::vector<Tensor> own(count);
  std::vector<std::int64_t> rows(count + 1, none), all_rows((count + 1) * ranks);
  rows.back() = stop_requested_ && stop_requested_() ? 1 : 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!parameters_[i].grad().defined()) continue;
    own[i] = as_rows(parameters_[i].grad());
    rows[i] = own[i]._nnz();
    if (!first_nonfinite_here_ && !has_finite_rows(own[i])) first_nonfinite_here_ = i;
  }
  const std::vector<std::size_t> bytes(ranks, rows.size() * sizeof rows[0]);
  communicator_.all_gather("rows of sparse gradients", rows.data(), all_rows.data(), bytes);
  sent_bytes_ += bytes[0];
  const auto of_ranks = [&](std::size_t i) {
    std::vector<std::int64_t> values;
    for (std::size_t r = 0; r < ranks; ++r) values.push_back(all_rows[r * (count + 1) + i]);
    return values;
  };
  stopping_ = std::ranges::max(of_ranks(count)) > 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto by_rank = of_ranks(i);
    gather(i, own[i], by_rank, divisor);
  }
}

void SparseGradients::gather(std::size_t i, const Tensor& own, const std::vector<std::int64_t>& rows_by_rank,
                             double divisor) {
  auto& parameter = parameters_[i];
  auto row_shape = parameter.sizes().vec();
  row_shape[0] = 1;
  const auto row_bytes = static_cast<std::size_t>(std::accumulate(row_shape.begin(), row_shape.end(),
                                                                  std::int64_t{1}, std::multiplies<>())) *
                         parameter.element_size();
  std::vector<std::size_t> parts;
  bool any = false;
  for (const auto rows : rows_by_rank) {
    parts.push_back(part_bytes(rows, row_bytes));
    any = any || rows != none;
  }
  if (!any) {
    parameter.mutable_grad() = Tensor();
    return;
  }
  const auto total = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  std::byte* const gathered = gathered_.get(communicator_, total);
  std::vector<Tensor> numbers, values;  // Views of each rank's part.
  std::byte* place = gathered;
  std::byte* own_place = place;
  for (std::size_t r = 0; r < parts.size(); place += parts[r++]) {
    if (static_cast<int>(r) == communicator_.rank) own_place = place;
    const auto rows = std::max<std::int64_t>(rows_by_rank[r], 0);
    row_shape[0] = rows;
    numbers.push_back(torch::from_blob(place, {1, rows}, torch::kInt64));
    values.push_back(torch::from_blob(place + index_bytes(rows), row_shape, parameter.scalar_type()));
  }
  const auto rank = static_cast<std::size_t>(communicator_.rank);
  if (own.defined()) {
    numbers[rank].copy_(own.indices());
    values[rank].copy_(own.values());
  }
  communicator_.all_gather("sparse " + names_[i], own_place, gathered, parts);
  sent_bytes_ += parts[rank];
  auto sum =
      torch::sparse_coo_tensor(torch::cat(numbers, 1), torch::cat(values), parameter.sizes()).coalesce();
  if (divisor != 1) sum.values().div_(divisor);
  if (!first_nonfinite_ && !has_finite_rows(sum)) first_nonfinite_ = i;
  parameter.mutable_grad() = sum;
}

void SparseGradients::clear() {
  for (auto& parameter : parameters_) parameter.mutable_grad() = Tensor();
}

void SparseGradients::scale(double factor) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    const auto& gradient = parameter.grad();
    if (gradient.defined()) (gradient.is_sparse() ? gradient._values() : gradient).mul_(factor);
  }
}

double SparseGradients::norm() const {
  double squares = 0;
  for (const auto& parameter : parameters_) {
    if (!parameter.grad().defined()) continue;
    const auto values =
        parameter.grad().is_sparse() ? parameter.grad().coalesce().values() : parameter.grad();
    squares += values.to(torch::kFloat64).pow(2).sum().item<double>();
  }
  return std::sqrt(squares);
}

}  // namespace farandole
