// A save copies into memory that the saves before it have left, and the writer needs none of
// that size either.
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include "train/mpi_session.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/session_internals.h"

namespace {

constexpr std::size_t large = 2 << 20;
std::atomic<int> large_blocks = 0;

void count(std::size_t bytes) {
  if (bytes >= large) ++large_blocks;
}

}  // namespace

// The program's own definitions take the place of glibc's, whose real ones have these names.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t elements, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) noexcept {
  count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t elements, std::size_t bytes) noexcept {
  count(elements * bytes);
  return __libc_calloc(elements, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  count(bytes);
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  count(bytes);
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}

namespace farandole {
namespace {

TEST(SaveMemory, OnlyTheFirstSaveAllocatesLargeBlocks) {
  torch::nn::Linear layer(1024, 1024);  // 4 MiB, and twice that in the optimizer
  torch::optim::Adam adam(layer->parameters());
  for (auto& parameter : layer->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  adam.step();
  std::optional<TemporaryFolder> folder;
  std::optional<CheckpointStore> store;
  if (session->rank() == 0) {
    folder.emplace();
    store.emplace(CheckpointOptions{.folder = folder->path()}, session->timeline());
  }
  const auto blocks_of_save = [&](std::int64_t step) {
    const int before = large_blocks;
    auto builder = store ? store->builder() : SnapshotBuilder();
    capture(*session, {*layer, adam}, {step, 0, 0}, builder);
    if (store) {
      store->save(builder.finish());
      store->wait();
    }
    return large_blocks - before;
  };
  const int first = blocks_of_save(1);
  EXPECT_EQ(first, store ? 3 : 0) << "the weight and its two moments";
  for (const std::int64_t step : {2, 3}) EXPECT_EQ(blocks_of_save(step), 0) << step;
}

}  // namespace
}  // namespace farandole
