// Which device a session computes on. LibTorch's CUDA library is loaded when a program asks for a GPU.
#include <ATen/Context.h>
#include <algorithm>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/gpu/gpu_choice.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/train/internals.h"
#include "farandole/train/session.h"

namespace farandole {
namespace {

// Returns nullptr and says why if this rank cannot use a GPU. LibTorch looks for GPUs only once, so this must
// come before anything else of it that does so.
std::shared_ptr<const GpuRuntime> load_gpus(std::string& why_not) {
  auto runtime = GpuRuntime::load(why_not);
  if (runtime == nullptr) return nullptr;
  // LibTorch finds the kernels of CUDA through what this library registers. Nothing links it, so that
  // programs start where it or its dependencies are missing.
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    why_not = std::string("LibTorch has no CUDA here (") + ::dlerror() + "); install its build for CUDA";
    return nullptr;
  }
  if (!at::hasCUDA()) {
    why_not = "LibTorch finds no GPU";
    return nullptr;
  }
  return runtime;
}

// Makes a GPU the current one of this thread and of LibTorch.
GpuOfRank use_gpu(std::shared_ptr<const GpuRuntime> runtime, int device) {
  runtime->use(device);
  const torch::Device place(torch::kCUDA, static_cast<torch::DeviceIndex>(device));
  const c10::impl::VirtualGuardImpl cuda(torch::kCUDA);
  cuda.setDevice(place);
  return {std::move(runtime), device,
          [cuda, place] { return static_cast<CUstream_st*>(cuda.getStream(place).native_handle()); }};
}

}  // namespace

void Session::use_device(std::string_view wish, int ranks_per_gpu) {
  if (wish == "cpu") return;
  std::string why_not;
  auto runtime = load_gpus(why_not);
  struct Gpus {
    std::int32_t count = 0;
    char first[48] = {};
    char topology[192] = {};
  };
  Gpus own;
  if (runtime != nullptr) {
    own.count = runtime->device_count();
    store_text(own.first, runtime->describe(0).uuid);
  }
  auto& mine = *internals_;
  std::vector<Gpus> all(static_cast<std::size_t>(size()));
  const std::vector<std::size_t> bytes(all.size(), sizeof own);
  mine.communicator().all_gather("GPUs", &own, all.data(), bytes);
  if (std::any_of(all.begin(), all.end(), [](const Gpus& gpus) { return gpus.count == 0; })) {
    together([&] {
      if (wish == "cuda" && runtime == nullptr)
        throw UserError(fmt::format("--device cuda cannot be used: {}; use --device cpu", why_not));
    });
    return;
  }
  const auto& layout = mine.job.layout();
  const auto node_of = [&](std::size_t r) { return layout.nodes[r]; };
  std::vector<VisibleGpus> here;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (node_of(r) == node_of(static_cast<std::size_t>(rank()))) here.push_back({all[r].count, all[r].first});
  Gpus chosen;
  int device = 0;
  try {
    together([&] { device = choose_gpu(here, local_rank(), node(), ranks_per_gpu); });
  } catch (const Error&) {
    if (wish == "auto") return;
    throw;
  }
  together([&] {
    mine.gpu = use_gpu(runtime, device);
    store_text(chosen.first, runtime->describe(device).uuid);
    store_text(chosen.topology, runtime->topology(device));
  });
  mine.communicator().all_gather("chosen GPUs", &chosen, all.data(), bytes);
  mine.gpus.clear();
  mine.gpu_topology.clear();
  for (const auto& gpu : all) {
    mine.gpus.emplace_back(gpu.first);
    mine.gpu_topology.emplace_back(gpu.topology);
  }
  mine.gpu->shared = std::set(mine.gpus.begin(), mine.gpus.end()).size() < mine.gpus.size();
  mine.device = torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(mine.gpu->device));
}

}  // namespace farandole
