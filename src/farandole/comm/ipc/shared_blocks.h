// Device memory that all ranks of a host can use, through CUDA IPC.
// Thread safety: none; use from one thread at a time. Any thread may use and free the memory
// that allocate() returns.
//
// CUDA may give small allocations parts of one that it shares as a whole, so blocks are multiples of its 2
// MiB. Memory that is given back stays mapped in all ranks and is used for later allocations, so nobody needs
// to wait for the others.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"

namespace farandole {

class SharedBlocks : public std::enable_shared_from_this<SharedBlocks> {
 public:
  // The same bytes of a block in this process: those of each rank, by rank.
  using Places = std::vector<std::byte*>;

  // `bootstrap` must outlive the last allocate().
  SharedBlocks(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime);
  ~SharedBlocks();
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;

  // Zeroed memory of this rank. It may be given back on any thread.
  // Throws: UserError on all ranks if their sizes differ; Error on all ranks if CUDA fails on one of them.
  // Collective: every rank of `bootstrap` must call this in the same order.
  Buffer allocate(std::size_t bytes);
  // Throws: UserError if [data, data + bytes) is not in memory of allocate().
  Places find(std::string_view name, const void* data, std::size_t bytes);
  // Ends the use of the other ranks' memory.
  void close_others();
  // Lets the destructor leave this rank's memory to the end of the process, because another rank may
  // still use it.
  void keep() { keep_ = true; }

 private:
  struct Block {
    std::size_t bytes = 0;
    Places places;
    bool used = false;
  };
  Block& take(std::size_t bytes);
  Block make(std::size_t bytes);

  Communicator& bootstrap_;
  const std::size_t rank_;
  const std::shared_ptr<const GpuRuntime> runtime_;
  std::mutex mutex_;                            // for the blocks' `used`
  std::vector<std::unique_ptr<Block>> blocks_;  // in the same order on all ranks
  bool keep_ = false;
};

}  // namespace farandole
