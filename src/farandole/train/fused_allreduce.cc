#include "farandole/train/fused_allreduce.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <torch/utils.h>
#include <xxhash.h>

#include "farandole/train/optimizer/tensor_bytes.h"

namespace farandole {
namespace {

// Each tensor starts at a cache line, so that the result of an element does not depend on its neighbours.
std::size_t padded_bytes(const torch::Tensor& tensor) {
  return (bytes_of(tensor) + 63) / 64 * 64;
}

// If ranks pass different tensors, the names of the collectives differ.
std::string describe(const std::vector<torch::Tensor>& tensors) {
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
  const auto name = describe(tensors);
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

}  // namespace farandole
