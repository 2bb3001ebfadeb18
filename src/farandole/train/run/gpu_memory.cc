#include "farandole/train/run/gpu_memory.h"

#include <algorithm>
#include <c10/core/CachingDeviceAllocator.h>

namespace farandole {
namespace {

struct AllocatorFacts {
  c10::CachingDeviceAllocator::DeviceStats stats;
  double used;  // of the device, by whatever process
};

std::optional<AllocatorFacts> ask_allocator(c10::DeviceIndex device) try {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::DeviceType::CUDA));
  if (allocator == nullptr) return std::nullopt;
  const auto [unused, all] = allocator->getMemoryInfo(device);
  return AllocatorFacts{allocator->getDeviceStats(device), static_cast<double>(all - unused)};
} catch (const c10::Error&) {  // There may be another allocator, which has no statistics.
  return std::nullopt;
}

double parameter_bytes(const TrackedState& tracked) {
  double bytes = 0;
  const auto add = [&](const std::vector<torch::Tensor>& tensors) {
    for (const auto& tensor : tensors)
      if (tensor.defined() && tensor.is_cuda()) bytes += static_cast<double>(tensor.nbytes());
  };
  for (const auto& [prefix, module] : tracked.modules) {
    add(module->parameters());
    add(module->buffers());
  }
  return bytes;
}

}  // namespace

std::vector<std::pair<std::string, double>> gpu_memory_by_owner_mib(int device, const TrackedState& tracked,
                                                           std::size_t gradient_bytes) {
  const auto facts = ask_allocator(static_cast<c10::DeviceIndex>(device));
  if (!facts) return {};
  constexpr auto all_pools = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto& reserved = facts->stats.reserved_bytes[all_pools];
  const double parameters = parameter_bytes(tracked);
  const double optimizer = std::max(0.0, static_cast<double>(bytes_on_gpu(tracked)) - parameters);
  const auto gradients = static_cast<double>(gradient_bytes);  // not in memory of LibTorch's allocator
  const auto peak_allocated = static_cast<double>(facts->stats.allocated_bytes[all_pools].peak);
  std::vector<std::pair<std::string, double>> owners = {
      {"parameters", parameters},
      {"gradients", gradients},
      {"optimizer", optimizer},
      {"activations", peak_allocated - parameters - optimizer},
      {"cached", static_cast<double>(reserved.peak) - peak_allocated},
      {"other", facts->used - static_cast<double>(reserved.current) - gradients}};
  double sum = 0;
  for (auto& [owner, amount] : owners) sum += amount = std::max(0.0, amount / (1024 * 1024));
  owners.emplace_back("peak", sum);
  return owners;
}

}  // namespace farandole
