// Ranks as threads of one process. A communicator that reduces and gathers directly in the memory of the
// other ranks, for tests of the layers above.
#pragma once

#include <barrier>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {

class ThreadWorld {
 public:
  static void run(int size, const std::function<void(Communicator&)>& body) {
    ThreadWorld world(size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        Rank communicator(world, rank);
        body(communicator);
      });
    for (auto& thread : threads) thread.join();
  }

 private:
  explicit ThreadWorld(int size) : barrier_(size), pointers_(static_cast<std::size_t>(size)) {}

  class Rank : public Communicator {
   public:
    Rank(ThreadWorld& world, int own_rank)
        : Communicator(own_rank, static_cast<int>(world.pointers_.size())), world_(world) {}

    void allreduce(std::string_view, void* data, std::size_t count, DType dtype, ReduceOp op) override {
      world_.pointers_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(data);
      world_.barrier_.arrive_and_wait();
      const std::vector<const std::byte*> inputs(world_.pointers_.begin(), world_.pointers_.end());
      std::vector<std::byte> result(count * size_of(dtype));
      std::byte* const output = result.data();
      reduce(inputs, {&output, 1}, count, dtype, op);
      world_.barrier_.arrive_and_wait();
      if (count > 0) std::memcpy(data, result.data(), result.size());
      world_.barrier_.arrive_and_wait();
    }
    void all_gather(std::string_view, const void* in, void* out,
                    std::span<const std::size_t> bytes_by_rank) override {
      world_.pointers_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(const_cast<void*>(in));
      world_.barrier_.arrive_and_wait();
      auto* at = static_cast<std::byte*>(out);
      for (std::size_t r = 0; r < bytes_by_rank.size(); ++r) {
        std::memcpy(at, world_.pointers_[r], bytes_by_rank[r]);
        at += bytes_by_rank[r];
      }
      world_.barrier_.arrive_and_wait();
    }
    void broadcast(std::string_view, void*, std::size_t, int) override { throw Error("not in ThreadWorld"); }
    void reduce_scatter(std::string_view, const void*, void*, std::span<const std::size_t>, DType,
                        ReduceOp) override {
      throw Error("not in ThreadWorld");
    }
    void all_to_all(std::string_view, const void*, std::span<const std::size_t>, void*,
                    std::span<const std::size_t>) override {
      throw Error("not in ThreadWorld");
    }
    Buffer allocate(std::size_t bytes) override {
      return Buffer(static_cast<std::byte*>(std::calloc(bytes + 1, 1)),
                    [](std::byte* data) { std::free(data); });
    }

   private:
    ThreadWorld& world_;
  };

  std::barrier<> barrier_;
  std::vector<std::byte*> pointers_;
};

// A transport that has lost its peer.
class FailingCommunicator : public Communicator {
 public:
  FailingCommunicator() : Communicator(0, 2) {}
  void allreduce(std::string_view, void*, std::size_t, DType, ReduceOp) override {
    throw Error("the peer is gone", ExitCode::peer_lost);
  }
  void all_gather(std::string_view, const void*, void*, std::span<const std::size_t>) override {}
  void broadcast(std::string_view, void*, std::size_t, int) override {}
  void reduce_scatter(std::string_view, const void*, void*, std::span<const std::size_t>, DType,
                      ReduceOp) override {}
  void all_to_all(std::string_view, const void*, std::span<const std::size_t>, void*,
                  std::span<const std::size_t>) override {}
  Buffer allocate(std::size_t bytes) override {
    return Buffer(static_cast<std::byte*>(std::calloc(bytes + 1, 1)),
                  [](std::byte* data) { std::free(data); });
  }
};

}  // namespace farandole
