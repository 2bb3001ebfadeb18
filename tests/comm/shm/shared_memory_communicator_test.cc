#include "farandole/comm/shm/shared_memory_communicator.h"

#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <span>

#include "fusion/thread_world.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/comm/kernels/float16.h"

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

// Small integers, so that the result is exact for every type and order of summation.
int element(unsigned seed, int rank, std::size_t i) {
  return static_cast<int>((seed * 7919u + static_cast<unsigned>(rank) * 104729u +
                           static_cast<unsigned>(i) * 2654435761u) >>
                          7) %
             3 +
         1;
}

template <class T>
T make(double value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    T half{};
    from_float(static_cast<float>(value), half);
    return half;
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
double number(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return to_float(value);
  else
    return static_cast<double>(value);
}

double reference(ReduceOp op, unsigned seed, int size, std::size_t i) {
  double result = element(seed, 0, i);
  for (int r = 1; r < size; ++r) {
    const double value = element(seed, r, i);
    result = op == ReduceOp::min       ? std::min(result, value)
             : op == ReduceOp::max     ? std::max(result, value)
             : op == ReduceOp::product ? result * value
                                       : result + value;
  }
  return op == ReduceOp::average ? result / size : result;
}

struct Case {
  unsigned seed;
  std::size_t count;
  std::size_t offset;   // bytes from the start of an allocation
  unsigned registered;  // bit r: the data of rank r is in its arena
  ReduceOp op;
};

template <class T>
void check_allreduce(Communicator& comm, const Case& c, DType dtype) {
  auto shared = comm.allocate(c.offset + c.count * sizeof(T));
  std::vector<std::byte> elsewhere(c.offset + c.count * sizeof(T) + 64);
  const bool registered = (c.registered >> comm.rank & 1) != 0;
  auto* const data = reinterpret_cast<T*>((registered ? shared.get() : elsewhere.data()) + c.offset);
  for (std::size_t i = 0; i < c.count; ++i) data[i] = make<T>(element(c.seed, comm.rank, i));
  comm.allreduce("case", data, c.count, dtype, c.op);
  for (std::size_t i = 0; i < c.count; ++i) {
    const double expected = reference(c.op, c.seed, comm.size, i);
    ASSERT_NEAR(number(data[i]), expected, std::abs(expected) * 4e-3)
        << name_of(dtype) << " " << name_of(c.op) << " " << c.count << " at " << i << " seed " << c.seed;
  }
}

TEST(SharedMemoryCommunicator, AllreduceMatchesTheReference) {
  for (int size = 1; size <= 5; ++size) {
    run_ranks(size, [](Communicator& comm) {
      std::mt19937 random(static_cast<unsigned>(comm.size));  // equal on all ranks
      for (int round = 0; round < 120; ++round) {
        const std::size_t largest = std::size_t{1} << random() % 19;
        Case c{static_cast<unsigned>(round), random() % largest, random() % 5 * 8,
               static_cast<unsigned>(random()), static_cast<ReduceOp>(random() % 5)};
        if (random() % 3 == 0) c.registered = random() % 2 == 0 ? ~0u : 0u;
        const bool integers = random() % 3 == 0;
        if (integers && c.op == ReduceOp::average) c.op = ReduceOp::sum;
        switch (random() % (integers ? 2 : 4)) {
          case 0:
            integers ? check_allreduce<std::int32_t>(comm, c, DType::int32)
                     : check_allreduce<float>(comm, c, DType::float32);
            break;
          case 1:
            integers ? check_allreduce<std::int64_t>(comm, c, DType::int64)
                     : check_allreduce<double>(comm, c, DType::float64);
            break;
          case 2:
            check_allreduce<Float16>(comm, c, DType::float16);
            break;
          default:
            check_allreduce<BFloat16>(comm, c, DType::bfloat16);
        }
      }
    });
  }
}

TEST(SharedMemoryCommunicator, AllRanksHoldTheSameBits) {
  for (int size = 2; size <= 5; ++size) {
    for (const std::size_t count : {200u, 5'000u, 300'001u}) {
      std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
      run_ranks(size, [&](Communicator& comm) {
        std::mt19937 random(static_cast<unsigned>(comm.rank));
        std::normal_distribution<float> normal(0, 1e3);
        auto buffer = comm.allocate(count * sizeof(float));
        auto* const data = reinterpret_cast<float*>(buffer.get());
        for (std::size_t i = 0; i < count; ++i) data[i] = normal(random);
        auto copy = std::vector<float>(data, data + count);
        comm.allreduce("registered", data, count, DType::float32, ReduceOp::average);
        comm.allreduce("elsewhere", copy.data(), count, DType::float32, ReduceOp::average);
        EXPECT_EQ(std::memcmp(data, copy.data(), count * sizeof(float)), 0);
        results[static_cast<std::size_t>(comm.rank)] = copy;
      });
      for (const auto& result : results)
        EXPECT_EQ(std::memcmp(result.data(), results[0].data(), count * sizeof(float)), 0);
    }
  }
}

// `bytes` bytes that identify their sender: byte i is from * 31 + to * 7 + i * 13 modulo 256.
std::span<const std::byte> marks(std::size_t from, std::size_t to, std::size_t bytes) {
  static const auto all = [] {
    std::vector<std::byte> pattern((std::size_t{1} << 19) + 256);
    for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 13);
    return pattern;
  }();
  constexpr std::size_t inverse_of_13 = 197;
  return std::span(all).subspan((from * 31 + to * 7) * inverse_of_13 % 256, bytes);
}

TEST(SharedMemoryCommunicator, MovesBytesOfRandomSizes) {
  for (int size = 1; size <= 5; ++size) {
    run_ranks(size, [](Communicator& comm) {
      const auto ranks = static_cast<std::size_t>(comm.size);
      const auto own = static_cast<std::size_t>(comm.rank);
      std::mt19937 random(seed(99));  // equal on all ranks
      for (int round = 0; round < 60; ++round) {
        const std::size_t largest = std::size_t{1} << random() % 20;
        std::vector<std::vector<std::size_t>> share(ranks, std::vector<std::size_t>(ranks));
        for (auto& row : share)
          for (auto& bytes : row) bytes = random() % largest;
        const bool registered = random() % 2 == 0;
        const auto memory = [&](std::size_t bytes) {
          return registered ? comm.allocate(bytes)
                            : Buffer(new std::byte[bytes + 1], [](std::byte* data) { delete[] data; });
        };
        std::vector<std::size_t> receives;
        std::size_t in_bytes = 0, out_bytes = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
          receives.push_back(share[r][own]);
          in_bytes += share[own][r];
          out_bytes += share[r][own];
        }
        const auto in = memory(in_bytes);
        const auto out = memory(out_bytes);
        const auto holds = [](const Buffer& data, const std::vector<std::byte>& right) {
          return right.empty() || std::memcmp(data.get(), right.data(), right.size()) == 0;
        };
        const auto put = [](std::byte* at, std::span<const std::byte> part) {
          return std::copy(part.begin(), part.end(), at);
        };
        auto* end = in.get();
        for (std::size_t r = 0; r < ranks; ++r) end = put(end, marks(own, r, share[own][r]));
        comm.all_to_all("parts", in.get(), share[own], out.get(), receives);
        std::vector<std::byte> expected(out_bytes);
        end = expected.data();
        for (std::size_t r = 0; r < ranks; ++r) end = put(end, marks(r, own, receives[r]));
        ASSERT_TRUE(holds(out, expected));

        // Gathers all parts for rank 0 in place: the own part of `all` is the input.
        std::vector<std::size_t> parts;
        std::size_t total = 0, before = 0;
        for (std::size_t r = 0; r < ranks; ++r) {
          parts.push_back(share[r][0]);
          if (r < own) before += parts[r];
          total += parts[r];
        }
        const auto all = memory(total);
        put(all.get() + before, marks(own, 0, parts[own]));
        comm.all_gather("gather", all.get() + before, all.get(), parts);
        expected.resize(total);
        end = expected.data();
        for (std::size_t r = 0; r < ranks; ++r) end = put(end, marks(r, 0, parts[r]));
        ASSERT_TRUE(holds(all, expected));

        const std::size_t root = random() % ranks;
        if (own != root) std::memset(all.get(), 0, total);
        comm.broadcast("broadcast", all.get(), total, static_cast<int>(root));
        ASSERT_TRUE(holds(all, expected));
      }
    });
  }
}

TEST(SharedMemoryCommunicator, ReduceScatterInPlaceAndElsewhere) {
  for (int size = 1; size <= 5; ++size) {
    run_ranks(size, [](Communicator& comm) {
      std::mt19937 random(seed(5));
      for (int round = 0; round < 60; ++round) {
        const std::size_t largest = std::size_t{1} << random() % 17;
        std::vector<std::size_t> counts;
        std::size_t total = 0, before = 0;
        for (int r = 0; r < comm.size; ++r) {
          if (r == comm.rank) before = total;
          counts.push_back(random() % largest);
          total += counts.back();
        }
        const bool in_place = random() % 2 == 0, registered = random() % 2 == 0;
        auto shared = comm.allocate(total * sizeof(double));
        std::vector<double> own_memory(total + 1), result(counts[static_cast<std::size_t>(comm.rank)] + 1);
        auto* const in = registered ? reinterpret_cast<double*>(shared.get()) : own_memory.data();
        auto* const out = in_place ? in + before : result.data();
        const auto seed = static_cast<unsigned>(round);
        for (std::size_t i = 0; i < total; ++i) in[i] = element(seed, comm.rank, i);
        comm.reduce_scatter("scatter", in, out, counts, DType::float64, ReduceOp::average);
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(comm.rank)]; ++i)
          ASSERT_DOUBLE_EQ(out[i], reference(ReduceOp::average, seed, comm.size, before + i));
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
                for (std::int64_t i = 0; i < 5'000; ++i) {
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

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no UserError";
}

// Each rank makes the good or the bad call, depending on its number. All ranks must report the
// difference in that call.
void expect_mismatch(const std::function<void(Communicator&)>& good,
                     const std::function<void(Communicator&)>& bad,
                     const testing::Matcher<std::string>& matcher) {
  run_ranks(3, [&](Communicator& comm) {
    float token = 0;
    comm.allreduce("before", &token, 1, DType::float32, ReduceOp::sum);
    EXPECT_THAT(message_of([&] { comm.rank == 1 ? bad(comm) : good(comm); }), matcher);
  });
}

TEST(SharedMemoryCommunicator, RanksThatAskForDifferentThingsAreTold) {
  std::vector<double> data(100'000);
  const auto allreduce = [](const char* name, std::size_t count, DType dtype, ReduceOp op) {
    return [=](Communicator& comm) {
      std::vector<double> own(100'000);
      comm.allreduce(name, own.data(), count, dtype, op);
    };
  };
  const auto broadcast = [](int root) {
    return [=](Communicator& comm) {
      std::vector<double> own(100'000);
      comm.broadcast("x", own.data(), 800, root);
    };
  };
  const auto good = allreduce("x", 70'000, DType::float32, ReduceOp::sum);
  expect_mismatch(good, allreduce("x", 7, DType::float32, ReduceOp::sum),
                  AllOf(HasSubstr("70000"), HasSubstr("1")));
  expect_mismatch(good, allreduce("x", 70'000, DType::float64, ReduceOp::sum),
                  AllOf(HasSubstr("float32"), HasSubstr("float64")));
  expect_mismatch(good, allreduce("x", 70'000, DType::float32, ReduceOp::max),
                  AllOf(HasSubstr("sum"), HasSubstr("max")));
  expect_mismatch(good, allreduce("y", 70'000, DType::float32, ReduceOp::sum),
                  AllOf(HasSubstr("x"), HasSubstr("y")));
  expect_mismatch(good, broadcast(0), AllOf(HasSubstr("allreduce"), HasSubstr("broadcast")));
  expect_mismatch(broadcast(0), broadcast(1), HasSubstr("root"));
  const auto all_to_all = [](std::size_t bytes) {
    return [=](Communicator& comm) {
      std::vector<double> own(100'000), out(100'000);
      const std::vector<std::size_t> sends(3, bytes), receives(3, 80);
      comm.all_to_all("x", own.data(), sends, out.data(), receives);
    };
  };
  expect_mismatch(all_to_all(80), all_to_all(88),
                  AllOf(HasSubstr("rank 1 sends 88"), HasSubstr("expects 80")));
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
      EXPECT_EQ(error.exit_code(), ExitCode::peer_lost);
    }
  });
}

TEST(SharedMemoryCommunicator, WhereMemoryCannotBeSharedAllRanksLearnWhy) {
  ThreadWorld::run(3, [](Communicator& exchange) {
    // More address space than a process has.
    const SharedMemoryOptions options{.arena_bytes = exchange.rank == 2 ? std::size_t{1} << 50 : 1u << 26};
    try {
      SharedMemoryCommunicator comm(exchange, options);
      ADD_FAILURE() << "a petabyte was mapped";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("address space"));
    }
  });
}

}  // namespace
}  // namespace farandole
