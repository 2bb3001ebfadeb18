#include "farandole/comm/ipc/shared_blocks.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/comm/gpu/cuda_functions.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {
namespace {

constexpr std::size_t granularity = std::size_t{2} << 20;

// How a rank makes a block, as the others must know it. Sent as it is.
struct Offer {
  cudaIpcMemHandle_t handle{};
  std::uint64_t bytes = 0;
  char failure[160] = {};  // empty if there is none
};

// All ranks throw the first failure.
void agree(Communicator& bootstrap, std::string_view name, Offer& own, std::vector<Offer>& all) {
  all.resize(static_cast<std::size_t>(bootstrap.size));
  bootstrap.all_gather(name, &own, all.data(), std::vector<std::size_t>(all.size(), sizeof own));
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].failure[0] != 0)
      throw Error(fmt::format("memory for ranks that share a GPU: process {}: {}", r, all[r].failure));
}

template <class Work>
void attempt(Offer& own, Work work) {
  try {
    work();
  } catch (const Error& error) {
    store_text(own.failure, error.what());
  }
}

}  // namespace

SharedBlocks::SharedBlocks(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime)
    : bootstrap_(bootstrap), rank_(static_cast<std::size_t>(bootstrap.rank)), runtime_(std::move(runtime)) {}

SharedBlocks::~SharedBlocks() {
  if (keep_) return;
  for (const auto& block : blocks_) runtime_->functions().free(block->places[rank_]);
}

void SharedBlocks::close_others() {
  for (const auto& block : blocks_)
    for (std::size_t r = 0; r < block->places.size(); ++r)
      if (r != rank_) runtime_->functions().ipc_close_mem_handle(block->places[r]);
}

Buffer SharedBlocks::allocate(std::size_t bytes) {
  auto& block = take(bytes);
  auto* const data = block.places[rank_];
  Buffer buffer(data, [self = shared_from_this(), &block](std::byte*) {
    // As cudaFree does, because any stream may still use the memory.
    self->runtime_->functions().device_synchronize();
    const std::lock_guard lock(self->mutex_);
    block.used = false;
  });
  runtime_->zero_now(data, bytes);
  return buffer;
}

// Ranks allocate and give back in the same order, so all of them find the same block.
SharedBlocks::Block& SharedBlocks::take(std::size_t bytes) {
  const auto wanted = (std::max<std::size_t>(bytes, 1) + granularity - 1) / granularity * granularity;
  const std::lock_guard lock(mutex_);
  auto block = std::find_if(blocks_.begin(), blocks_.end(),
                            [&](const auto& each) { return !each->used && each->bytes == wanted; });
  if (block == blocks_.end()) block = blocks_.insert(blocks_.end(), std::make_unique<Block>(make(wanted)));
  (*block)->used = true;
  return **block;
}

SharedBlocks::Block SharedBlocks::make(std::size_t bytes) {
  const auto& cuda = runtime_->functions();
  Block block;
  block.bytes = bytes;
  block.places.resize(static_cast<std::size_t>(bootstrap_.size));
  Offer own;
  own.bytes = bytes;
  void* memory = nullptr;
  attempt(own, [&] {
    cuda.check(cuda.malloc(&memory, bytes), "cudaMalloc");
    if (bootstrap_.size > 1) cuda.check(cuda.ipc_get_mem_handle(&own.handle, memory), "cudaIpcGetMemHandle");
  });
  block.places[rank_] = static_cast<std::byte*>(memory);
  std::vector<Offer> all;
  agree(bootstrap_, "memory on GPUs", own, all);
  for (const auto& offer : all)
    if (offer.bytes != bytes) throw UserError("ranks that share a GPU allocate different sizes");
  attempt(own, [&] {
    for (std::size_t r = 0; r < all.size(); ++r) {
      void* theirs = nullptr;
      if (r == rank_) continue;
      cuda.check(cuda.ipc_open_mem_handle(&theirs, all[r].handle, cudaIpcMemLazyEnablePeerAccess),
                 "cudaIpcOpenMemHandle");
      block.places[r] = static_cast<std::byte*>(theirs);
    }
  });
  agree(bootstrap_, "mapped memory on GPUs", own, all);
  return block;
}

SharedBlocks::Places SharedBlocks::find(std::string_view name, const void* data, std::size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(data);
  for (const auto& block : blocks_) {
    const auto offset = at - block->places[rank_];
    if (offset < 0 || static_cast<std::size_t>(offset) + bytes > block->bytes) continue;
    auto places = block->places;
    for (auto& place : places) place += offset;
    return places;
  }
  throw UserError(fmt::format("the memory of '{}' must come from allocate()", name));
}

}  // namespace farandole
