// The communicator of a single rank. Its collectives only copy memory.
// Thread safety: none; use from one thread at a time.
#pragma once

#include "farandole/comm/communicator.h"

namespace farandole {

class SoloCommunicator : public Communicator, private NonblockingAllreduce {
 public:
  SoloCommunicator() : Communicator(0, 1) {}

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override;
  NonblockingAllreduce* nonblocking_allreduce() override { return this; }

 private:
  void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool test() override { return true; }
  void wait() override {}
  bool can_progress() const override { return true; }
};

}  // namespace farandole
