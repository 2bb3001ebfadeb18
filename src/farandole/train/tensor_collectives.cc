#include "farandole/train/tensor_collectives.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <sstream>
#include <torch/serialize.h>
#include <torch/utils.h>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/train/collectives_internals.h"
#include "farandole/train/tensor_bytes.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

// Distributes n rows over `size` ranks. If n is not divisible, the first ranks get one more row.
std::vector<std::int64_t> even_rows(std::int64_t rows, int size) {
  std::vector<std::int64_t> share(static_cast<std::size_t>(size), rows / size);
  for (std::int64_t r = 0; r < rows % size; ++r) ++share[static_cast<std::size_t>(r)];
  return share;
}

std::int64_t elements_in_row(const torch::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return std::accumulate(sizes.begin() + 1, sizes.end(), std::int64_t{1}, std::multiplies<>());
}

void need_rows(const torch::Tensor& tensor, const char* operation) {
  if (tensor.dim() == 0)
    throw UserError(std::string(operation) + " needs rows; add a dimension to the scalar with unsqueeze(0)");
}

std::vector<std::size_t> times(const std::vector<std::int64_t>& rows, std::int64_t factor) {
  std::vector<std::size_t> result;
  for (const auto n : rows) result.push_back(static_cast<std::size_t>(n * factor));
  return result;
}

torch::Tensor empty_rows(const torch::Tensor& like, std::int64_t rows) {
  auto sizes = like.sizes().vec();
  sizes[0] = rows;
  return torch::empty(sizes, like.options().requires_grad(false));
}

// Runs a collective on contiguous memory of the host for `tensor`. If this memory is a copy, the result
// is written back.
template <class Call>
void in_place(torch::Tensor& tensor, Call call) {
  const torch::NoGradGuard no_grad;
  auto contiguous = tensor.cpu().contiguous();
  call(contiguous);
  if (!contiguous.is_same(tensor)) tensor.copy_(contiguous);
}

// Each tensor starts at a cache line, so that the result of an element does not depend on its neighbours.
std::size_t padded_bytes(const torch::Tensor& tensor) {
  return (bytes_of(tensor) + 63) / 64 * 64;
}

// If ranks pass different tensors, the names of the collectives differ.
std::string signature_of(const std::vector<torch::Tensor>& tensors) {
  std::string shapes;
  for (const auto& tensor : tensors)
    shapes += fmt::format(" {}[{}]", name_of(dtype_of(tensor)), fmt::join(tensor.sizes(), ","));
  const auto hash = static_cast<std::uint32_t>(XXH3_64bits(shapes.data(), shapes.size()));
  return fmt::format("allreduce of {} tensors {:08x}:{}", tensors.size(), hash, shapes);
}

}  // namespace

void FusedAllreduce::run(Communicator& communicator, const std::vector<torch::Tensor>& tensors,
                         std::vector<torch::Tensor>& results, ReduceOp op) {
  const torch::NoGradGuard no_grad;
  const auto name = signature_of(tensors);
  std::vector<DType> types;
  for (const auto& tensor : tensors)
    if (std::find(types.begin(), types.end(), dtype_of(tensor)) == types.end())
      types.push_back(dtype_of(tensor));
  if (types.empty()) communicator.barrier(name);  // If other ranks pass tensors, this call detects it.
  for (const auto type : types) {
    std::vector<std::size_t> members;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (dtype_of(tensors[i]) == type) {
        members.push_back(i);
        bytes += padded_bytes(tensors[i]);
      }
    std::byte* const staging = staging_[type].get(communicator, bytes);
    const auto each = [&](auto visit) {
      std::size_t offset = 0;
      for (const auto i : members) {
        visit(i, torch::from_blob(staging + offset, tensors[i].sizes(), scalar_type_of(type)));
        offset += padded_bytes(tensors[i]);
      }
    };
    each([&](std::size_t i, torch::Tensor place) { place.copy_(tensors[i]); });
    communicator.allreduce(name, staging, bytes / size_of(type), type, op);
    each([&](std::size_t i, const torch::Tensor& place) { results[i].copy_(place); });
  }
}

TensorCollectives::TensorCollectives(std::unique_ptr<Internals> internals)
    : internals_(std::move(internals)) {}

TensorCollectives::~TensorCollectives() = default;

int TensorCollectives::rank() const {
  return internals_->communicator->rank;
}
int TensorCollectives::size() const {
  return internals_->communicator->size;
}

torch::Tensor TensorCollectives::allreduce(const torch::Tensor& tensor, ReduceOp op) {
  auto result = tensor.detach().clone(torch::MemoryFormat::Contiguous);
  allreduce_(result, op);
  return result;
}

void TensorCollectives::allreduce_(torch::Tensor& tensor, ReduceOp op) {
  in_place(tensor, [&](torch::Tensor& data) {
    internals_->communicator->allreduce("allreduce", data.data_ptr(), static_cast<std::size_t>(data.numel()),
                                        dtype_of(data), op);
  });
}

std::vector<torch::Tensor> TensorCollectives::allreduce(const std::vector<torch::Tensor>& tensors,
                                                        ReduceOp op) {
  std::vector<torch::Tensor> results;
  for (const auto& tensor : tensors)
    results.push_back(torch::empty(tensor.sizes(), tensor.options().requires_grad(false)));
  internals_->fused.run(*internals_->communicator, tensors, results, op);
  return results;
}

void TensorCollectives::allreduce_(std::vector<torch::Tensor>& tensors, ReduceOp op) {
  internals_->fused.run(*internals_->communicator, tensors, tensors, op);
}

torch::Tensor TensorCollectives::all_gather(const torch::Tensor& tensor) {
  need_rows(tensor, "all_gather");
  const auto data = tensor.detach().cpu().contiguous();
  // Rows (may differ), elements per row and type (must not differ) of every rank, and whether the rank takes
  // part. A rank that has joined (join.h) sends zeros.
  std::vector<std::int64_t> own = {data.size(0), elements_in_row(data),
                                   static_cast<std::int64_t>(dtype_of(data)), 1};
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(size()));
  const std::vector<std::size_t> header_bytes(static_cast<std::size_t>(size()), own.size() * sizeof own[0]);
  internals_->communicator->all_gather("shapes of all_gather", own.data(), all.data(), header_bytes);
  std::vector<std::int64_t> rows;
  const auto header_of = [&](int r) { return all.data() + static_cast<std::size_t>(r) * own.size(); };
  int first = 0;
  while (header_of(first)[3] == 0) ++first;
  for (int r = 0; r < size(); ++r) {
    const auto *header = header_of(r), *one = header_of(first);
    if (header[3] != 0 && (header[1] != one[1] || header[2] != one[2]))
      throw UserError(fmt::format(
          "all_gather: rank {} has rows of {} {} and rank {} of {} {}; only the first dimension may differ",
          r, header[1], name_of(static_cast<DType>(header[2])), first, one[1],
          name_of(static_cast<DType>(one[2]))));
    rows.push_back(header[0]);
  }
  auto result = empty_rows(data, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  const auto bytes = times(rows, elements_in_row(data) * static_cast<std::int64_t>(data.element_size()));
  internals_->communicator->all_gather("all_gather", data.data_ptr(), result.data_ptr(), bytes);
  return result.to(tensor.device());
}

void TensorCollectives::broadcast_(torch::Tensor& tensor, int root) {
  dtype_of(tensor);
  in_place(tensor, [&](torch::Tensor& data) {
    internals_->communicator->broadcast("broadcast", data.data_ptr(), bytes_of(data), root);
  });
}

torch::Tensor TensorCollectives::reduce_scatter(const torch::Tensor& tensor, ReduceOp op) {
  need_rows(tensor, "reduce_scatter");
  const auto data = tensor.detach().cpu().contiguous();
  const auto rows = even_rows(data.size(0), size());
  auto result = empty_rows(data, rows[static_cast<std::size_t>(rank())]);
  internals_->communicator->reduce_scatter("reduce_scatter", data.data_ptr(), result.data_ptr(),
                                           times(rows, elements_in_row(data)), dtype_of(data), op);
  return result.to(tensor.device());
}

torch::Tensor TensorCollectives::all_to_all(const torch::Tensor& tensor, std::vector<std::int64_t> splits) {
  need_rows(tensor, "all_to_all");
  const auto data = tensor.detach().cpu().contiguous();
  const auto ranks = static_cast<std::size_t>(size());
  if (splits.empty()) splits = even_rows(data.size(0), size());
  const auto total = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  const bool negative = std::any_of(splits.begin(), splits.end(), [](std::int64_t rows) { return rows < 0; });
  if (splits.size() != ranks || total != data.size(0) || negative)
    throw UserError(
        fmt::format("all_to_all: {} splits with {} rows in total for {} ranks and {} rows; give one "
                    "split per rank; their sum must be the number of rows",
                    splits.size(), total, ranks, data.size(0)));
  // Not every transport compares the sizes of the rows, so each rank tells all others. A rank that has
  // joined sends zeros.
  using Header = std::array<std::int64_t, 3>;  // rows, elements in a row, type
  std::vector<Header> own(ranks), others(ranks);
  const auto type = static_cast<std::int64_t>(dtype_of(data));
  for (std::size_t r = 0; r < ranks; ++r) own[r] = {splits[r], elements_in_row(data), type};
  const std::vector<std::size_t> one(ranks, sizeof(Header));
  internals_->communicator->all_to_all("splits of all_to_all", own.data(), one, others.data(), one);
  std::vector<std::int64_t> arriving;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto& [rows, elements, other_type] = others[r];
    if (others[r] != Header{} && (elements != elements_in_row(data) || other_type != type))
      throw UserError(fmt::format(
          "all_to_all: rank {} has rows of {} {} and rank {} of {} {}; only the first dimension may differ",
          r, elements, name_of(static_cast<DType>(other_type)), rank(), elements_in_row(data),
          name_of(dtype_of(data))));
    arriving.push_back(rows);
  }
  auto result = empty_rows(data, std::accumulate(arriving.begin(), arriving.end(), std::int64_t{0}));
  const auto row_bytes = elements_in_row(data) * static_cast<std::int64_t>(data.element_size());
  internals_->communicator->all_to_all("all_to_all", data.data_ptr(), times(splits, row_bytes),
                                       result.data_ptr(), times(arriving, row_bytes));
  return result.to(tensor.device());
}

void TensorCollectives::barrier() {
  internals_->communicator->barrier();
}

void TensorCollectives::broadcast(torch::nn::Module& module, int root) {
  const auto send = [&](const std::string& name, torch::Tensor tensor) {
    in_place(tensor, [&](torch::Tensor& data) {
      internals_->communicator->broadcast(name, data.data_ptr(), bytes_of(data), root);
    });
  };
  for (const auto& item : module.named_parameters()) send(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) send(item.key(), item.value());
  // If ranks share the parameters, the root could change them while others still write what
  // they have received.
  internals_->communicator->barrier();
}

void TensorCollectives::broadcast(std::string& text, int root) {
  broadcast_text(*internals_->communicator, text, root);
}

void TensorCollectives::broadcast(torch::optim::Optimizer& optimizer) {
  // First the options of each group, in LibTorch's serialization.
  for (auto& group : optimizer.param_groups()) {
    if (!group.has_options()) continue;
    std::string text;
    if (rank() == 0) {
      std::ostringstream stream;
      torch::serialize::OutputArchive archive;
      group.options().serialize(archive);
      archive.save_to(stream);
      text = stream.str();
    }
    broadcast(text);
    if (rank() == 0) continue;
    std::istringstream stream(text);
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    group.options().serialize(archive);
  }
  // Then the state: a table of the tensors, then their values.
  const auto names = numbered_parameters(optimizer);
  auto state = rank() == 0 ? export_optimizer_state(optimizer, names) : NamedTensors{};
  auto table = table_of(state);
  broadcast(table);
  if (rank() != 0) state = zeros_from(table);
  for (auto& [name, value] : state) {
    auto data = value.cpu().contiguous();
    internals_->communicator->broadcast(name, data.data_ptr(), bytes_of(data), 0);
    value = data;
  }
  if (rank() != 0) import_optimizer_state(optimizer, names, state);
  internals_->communicator->barrier();  // As for a module.
}

}  // namespace farandole
