// Ranks as forked processes, for tests that kill them. They have a bootstrap communicator over a shared page.
#pragma once

#include <array>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/shm/node_barrier.h"

namespace farandole {

// Created before the fork and mapped in all children.
class ForkWorld {
 public:
  static constexpr std::size_t most_ranks = 8;
  static constexpr std::size_t most_bytes = 512;  // per rank and message

  struct Page {
    std::array<ArrivalLine, most_ranks> lines;
    std::array<std::array<std::byte, most_bytes>, most_ranks> messages;
  };

  explicit ForkWorld(int size) : size_(size) {
    void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    page_ = new (memory) Page{};
  }
  ~ForkWorld() { ::munmap(page_, sizeof(Page)); }
  ForkWorld(const ForkWorld&) = delete;
  ForkWorld& operator=(const ForkWorld&) = delete;

  class Exchange : public Communicator {
   public:
    Exchange(ForkWorld& world, int own_rank) : Communicator(own_rank, world.size_), page_(*world.page_) {
      std::vector<ArrivalLine*> lines;
      for (int r = 0; r < size; ++r) lines.push_back(&page_.lines[static_cast<std::size_t>(r)]);
      barrier_ = std::make_unique<NodeBarrier>(own_rank, lines, Patience{std::chrono::nanoseconds(0), false},
                                               [](int, bool left) {
                                                 if (left) throw Error("a rank is missing");
                                               });
    }
    void all_gather(std::string_view, const void* in, void* out,
                    std::span<const std::size_t> bytes) override {
      std::memcpy(page_.messages[static_cast<std::size_t>(rank)].data(), in,
                  bytes[static_cast<std::size_t>(rank)]);
      barrier_->arrive_and_wait();
      auto* at = static_cast<std::byte*>(out);
      for (std::size_t r = 0; r < bytes.size(); at += bytes[r++])
        std::memcpy(at, page_.messages[r].data(), bytes[r]);
      barrier_->arrive_and_wait();
    }
    void allreduce(std::string_view, void*, std::size_t, DType, ReduceOp) override { refuse(); }
    void broadcast(std::string_view, void*, std::size_t, int) override { refuse(); }
    void reduce_scatter(std::string_view, const void*, void*, std::span<const std::size_t>, DType,
                        ReduceOp) override {
      refuse();
    }
    void all_to_all(std::string_view, const void*, std::span<const std::size_t>, void*,
                    std::span<const std::size_t>) override {
      refuse();
    }
    Buffer allocate(std::size_t) override { return {}; }

   private:
    [[noreturn]] static void refuse() { throw Error("not in ForkWorld"); }

    Page& page_;
    std::unique_ptr<NodeBarrier> barrier_;
  };

 private:
  int size_;
  Page* page_ = nullptr;
};

}  // namespace farandole
