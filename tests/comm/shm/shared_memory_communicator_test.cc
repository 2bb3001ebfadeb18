#include "farandole/comm/shm/shared_memory_communicator.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "comm/typed_values.h"
#include "error_message.h"
#include "fusion/thread_world.h"
#include "lane.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Ranks are threads with one communicator each. The arenas are mapped through /proc, as between processes.
void run_ranks(int size, const std::function<void(SharedMemoryCommunicator&)>& body,
               SharedMemoryOptions options = {}) {
  options.arena_bytes = std::size_t{64} << 20;
  ThreadWorld::run(size, [&](Communicator& exchange) {
    SharedMemoryCommunicator communicator(exchange, options);
    body(communicator);
  });
}

struct Case {
  unsigned seed;
  std::size_t count;
  std::size_t offset;   // bytes from the start of an allocation
  unsigned registered;  // bit r: the data of rank r is in its arena
  DType dtype;
  ReduceOp op;
};

void check_allreduce(Communicator& comm, const Case& c) {
  const std::size_t bytes = c.offset + c.count * size_of(c.dtype);
  const auto shared = comm.allocate(bytes), elsewhere = private_memory(bytes);
  const bool registered = (c.registered >> comm.rank & 1) != 0;
  auto* const data = (registered ? shared.get() : elsewhere.get()) + c.offset;
  fill(data, c.dtype, c.count, c.seed, comm.rank);
  comm.allreduce("case", data, c.count, c.dtype, c.op);
  ASSERT_EQ(first_wrong(data, c.dtype, c.count, reference(c.op, c.dtype, c.seed, comm.size)), c.count)
      << name_of(c.dtype) << " " << name_of(c.op) << " seed " << c.seed;
}

// The data of some ranks is in their arenas, that of others is not.
TEST(SharedMemoryCommunicator, AllreduceMatchesTheReference) {
  for (int size = 1; size <= 5; ++size) {
    run_ranks(size, [](Communicator& comm) {
      std::mt19937 random(static_cast<unsigned>(comm.size));  // equal on all ranks
      for (int round = 0; round < 120; ++round) {
        const std::size_t largest = std::size_t{1} << random() % 19;
        Case c{static_cast<unsigned>(round),
               random() % largest,
               random() % 5 * 8,
               static_cast<unsigned>(random()),
               static_cast<DType>(random() % 8),
               static_cast<ReduceOp>(random() % 5)};
        if (random() % 3 == 0) c.registered = random() % 2 == 0 ? ~0u : 0u;
        if (!can_reduce(c.op, c.dtype)) c.op = ReduceOp::max;
        check_allreduce(comm, c);
      }
    });
  }
}

// More ranks than cores, with all kinds of waiting.
TEST(SharedMemoryCommunicator, ManyCallsWithoutAHang) {
  using std::chrono::nanoseconds;
  for (const auto patience : {Patience{nanoseconds(0), false}, Patience{nanoseconds(50'000), false},
                              Patience{nanoseconds(50'000), true}}) {
    run_ranks(4,
              [](Communicator& comm) {
                auto buffer = comm.allocate(8192);
                std::int64_t value = 0;
                for (std::int64_t i = 0; i < rounds(1'000, 5'000); ++i) {
                  value = comm.rank + i;
                  comm.allreduce("small", &value, 1, DType::int64, ReduceOp::sum);
                  ASSERT_EQ(value, 4 * i + 6);
                  if (i % 16 == 0) comm.allreduce("direct", buffer.get(), 1024, DType::int64, ReduceOp::max);
                }
              },
              {.patience = patience});
  }
}

TEST(SharedMemoryCommunicator, MemoryComesZeroedAndIsUsedAgain) {
  run_ranks(2, [](Communicator& comm) {
    const std::size_t bytes = std::size_t{40} << 20;  // more than half of the arena
    for (int round = 0; round < 3; ++round) {
      auto buffer = comm.allocate(bytes);
      for (std::size_t i = 0; i < bytes; i += 4093) ASSERT_EQ(buffer[i], std::byte{0});
      std::memset(buffer.get(), 1, bytes);
      comm.allreduce("used", buffer.get(), bytes, DType::uint8, ReduceOp::sum);
      ASSERT_EQ(buffer[bytes - 1], std::byte{2});
    }
    // If the arena is full, other memory is used and works too.
    auto first = comm.allocate(bytes);
    auto second = comm.allocate(bytes);
    std::memset(second.get(), 3, bytes);
    comm.allreduce("second", second.get(), bytes, DType::uint8, ReduceOp::sum);
    ASSERT_EQ(second[bytes / 2], std::byte{6});
  });
}

TEST(SharedMemoryCommunicator, BuffersOutliveTheCommunicator) {
  ThreadWorld::run(2, [](Communicator& exchange) {
    Buffer buffer;
    {
      SharedMemoryCommunicator comm(exchange, {.arena_bytes = std::size_t{64} << 20});
      buffer = comm.allocate(100'000);
    }
    std::memset(buffer.get(), 7, 100'000);
  });
}

TEST(SharedMemoryCommunicator, ARankThatLeavesIsNamed) {
  run_ranks(3, [](Communicator& comm) {
    if (comm.rank == 1) return;
    float token = 0;
    try {
      comm.allreduce("loss", &token, 1, DType::float32, ReduceOp::sum);
      ADD_FAILURE() << "nobody was missed";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank"), HasSubstr("loss")));
      EXPECT_EQ(error.exit_code(), ExitCode::user_error);
    }
  });
}

TEST(SharedMemoryCommunicator, WhereMemoryCannotBeSharedAllRanksLearnWhy) {
  ThreadWorld::run(3, [](Communicator& exchange) {
    // More address space than a process has.
    const SharedMemoryOptions options{.arena_bytes = exchange.rank == 2 ? std::size_t{1} << 50 : 1u << 26};
    EXPECT_THAT(message_of<Error>([&] { SharedMemoryCommunicator comm(exchange, options); }),
                HasSubstr("address space"));
  });
}

}  // namespace
}  // namespace farandole
