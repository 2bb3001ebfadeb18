#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <thread>

#include "comm/communicator_ways.h"
#include "comm/mpi_world.h"
#include "comm/typed_values.h"
#include "lane.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

const std::vector<ReduceOp> all_ops = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                                       ReduceOp::product};
const std::vector<std::size_t> sizes = {0, 1, 2, 3, 7, 64, 1023, 20'011, 300'007};

class Collectives : public testing::TestWithParam<Way> {
 protected:
  // The measurement between nodes may choose MPI's own collectives, whatever the test asked for.
  bool mpi_alone() const { return dynamic_cast<const MpiCommunicator*>(comm_.get()) != nullptr; }

  // Rank 1 expects 9 bytes of `from`, and every rank sends 8.
  void expect_named_sizes(std::size_t from, const std::string& message) {
    if (comm_->size < 2) GTEST_SKIP() << "one rank knows its sizes";
    std::vector<std::size_t> sends(static_cast<std::size_t>(comm_->size), 8), receives = sends;
    if (comm_->rank == 1) receives[from] = 9;
    const std::vector<std::byte> in(1000);
    std::vector<std::byte> out(1000);
    try {
      comm_->all_to_all("rows", in.data(), sends, out.data(), receives);
      FAIL() << "nobody noticed";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }

  std::unique_ptr<Communicator> comm_ = GetParam().make();
};

TEST_P(Collectives, AllreduceMatchesTheReference) {
  unsigned seed = 0;
  for (const auto dtype : all_dtypes) {
    for (const auto op : all_ops) {
      for (const auto count : sizes) {
        ++seed;
        // Many pieces: a sum, and an average, which is divided at its end; on one node also all types.
        const bool of_float32 = dtype == DType::float32 && (op == ReduceOp::sum || op == ReduceOp::average);
        const bool of_all_types = op == ReduceOp::max && GetParam().node_of == nullptr;
        if (count > 100'000 && !of_float32 && !of_all_types) continue;
        auto buffer = comm_->allocate(count * size_of(dtype));
        fill(buffer.get(), dtype, count, seed, comm_->rank);
        try {
          comm_->allreduce("test", buffer.get(), count, dtype, op);
        } catch (const UserError& error) {
          const bool refused = (dtype == DType::boolean && op == ReduceOp::sum) ||
                               (op == ReduceOp::average && dtype >= DType::int32);
          EXPECT_TRUE(refused) << error.what();
          continue;
        }
        ASSERT_EQ(first_wrong(buffer.get(), dtype, count, reference(op, dtype, seed, comm_->size)), count)
            << name_of(dtype) << " " << name_of(op);
      }
    }
  }
}

// A run that continues from a checkpoint may put its gradients into other messages, and must round as before.
TEST_P(Collectives, SumsDoNotDependOnHowMessagesAreCut) {
  if (mpi_alone()) GTEST_SKIP() << "MPI chooses the order";
  auto* const nonblocking = comm_->nonblocking_allreduce();
  std::mt19937 random(seed(14));  // equal on all ranks
  std::mt19937 own(seed(15) + static_cast<unsigned>(comm_->rank));
  for (const std::size_t most : {200, 30'000, 400'000}) {
    const std::size_t count = 1 + random() % most;
    const auto memory = comm_->allocate(2 * count * sizeof(float));
    auto* const whole = reinterpret_cast<float*>(memory.get());
    auto* const cut = whole + count;
    // Values of very different sizes: another order of additions gives other bits.
    for (std::size_t i = 0; i < count; ++i)
      whole[i] = cut[i] =
          std::ldexp(static_cast<float>(own() % 1'000'003) - 500'000.0F, static_cast<int>(own() % 24));
    comm_->allreduce("whole", whole, count, DType::float32, ReduceOp::average);
    for (std::size_t done = 0; done < count;) {
      const std::size_t part = std::min(count - done, 1 + random() % (std::size_t{1} << random() % 20));
      if (nonblocking != nullptr && random() % 2 == 0) {
        nonblocking->start("part", cut + done, part, DType::float32, ReduceOp::average);
        nonblocking->wait();
      } else {
        comm_->allreduce("part", cut + done, part, DType::float32, ReduceOp::average);
      }
      done += part;
    }
    ASSERT_EQ(std::memcmp(whole, cut, count * sizeof(float)), 0) << count << " elements";
  }
}

TEST_P(Collectives, NonblockingAllreducesMatchTheReference) {
  auto* const nonblocking = comm_->nonblocking_allreduce();
  if (nonblocking == nullptr) GTEST_SKIP() << "this communicator has none";
  std::mt19937 random(seed(11));  // equal on all ranks
  for (unsigned round = 0; round < 60; ++round) {
    const std::size_t count = random() % (std::size_t{1} << random() % 20);
    const auto op = all_ops[random() % all_ops.size()];
    const bool registered = random() % 4 != 0;
    auto buffer = registered ? comm_->allocate(count * sizeof(float)) : private_memory(count * sizeof(float));
    fill(buffer.get(), DType::float32, count, round, comm_->rank);
    nonblocking->start("test", buffer.get(), count, DType::float32, op);
    if (random() % 2 == 0)
      while (!nonblocking->test()) std::this_thread::yield();
    else
      nonblocking->wait();
    ASSERT_EQ(
        first_wrong(buffer.get(), DType::float32, count, reference(op, DType::float32, round, comm_->size)),
        count)
        << name_of(op);
    ASSERT_TRUE(nonblocking->test());
  }
}

TEST_P(Collectives, ManySmallAllreduces) {
  const long calls = rounds(500, 100'000);
  std::mt19937 random(seed(3));
  auto buffer = comm_->allocate(2048);
  auto* const values = reinterpret_cast<std::int64_t*>(buffer.get());
  for (long call = 0; call < calls; ++call) {
    const std::size_t count = 1 + random() % 256;
    values[0] = values[count - 1] = call + comm_->rank;
    comm_->allreduce("test", values, count, DType::int64, ReduceOp::max);
    ASSERT_EQ(values[0], call + comm_->size - 1);
    ASSERT_EQ(values[count - 1], call + comm_->size - 1);
  }
}

TEST_P(Collectives, AllreduceIsBitwiseEqualOnAllRanksAndInAnyMemory) {
  std::mt19937 random(static_cast<unsigned>(comm_->rank) + 17);
  std::normal_distribution<float> normal(0, 1e3);
  for (const std::size_t count : {1u, 3u, 100u, 5000u, 100'003u}) {
    const std::size_t bytes = count * sizeof(float);
    const auto memory = comm_->allocate(bytes);
    auto* const registered = reinterpret_cast<float*>(memory.get());
    for (std::size_t i = 0; i < count; ++i) registered[i] = normal(random);
    std::vector<float> elsewhere(registered, registered + count);
    comm_->allreduce("test", registered, count, DType::float32, ReduceOp::average);
    comm_->allreduce("test", elsewhere.data(), count, DType::float32, ReduceOp::average);
    if (!mpi_alone()) {
      EXPECT_EQ(std::memcmp(registered, elsewhere.data(), bytes), 0);
    }
    auto of_root = elsewhere;
    comm_->broadcast("test", of_root.data(), bytes, 0);
    EXPECT_EQ(std::memcmp(elsewhere.data(), of_root.data(), bytes), 0);
  }
}

// Wherever the NaN is, and whatever reduces it: plain MPI drops it or not by the order of the ranks.
TEST_P(Collectives, ANaNOfAnyRankIsTheResult) {
  const auto check = [&]<class T>(T, DType dtype) {
    for (const auto op : all_ops)
      for (int sick = 0; sick < comm_->size; ++sick) {
        std::vector<T> data(37);
        for (std::size_t i = 0; i < data.size(); ++i) {
          const bool nan = comm_->rank == sick && i % 2 == 0;
          const float value = nan ? std::nanf("") : static_cast<float>(comm_->rank) - 1.5f;
          if constexpr (sizeof(T) == 2)
            from_float(value, data[i]);
          else
            data[i] = static_cast<T>(value);
        }
        comm_->allreduce("test", data.data(), data.size(), dtype, op);
        for (std::size_t i = 0; i < data.size(); ++i) {
          const bool nan = [&] {
            if constexpr (sizeof(T) == 2)
              return std::isnan(to_float(data[i]));
            else
              return std::isnan(data[i]);
          }();
          ASSERT_EQ(nan, i % 2 == 0) << name_of(dtype) << " " << name_of(op) << " rank " << sick;
        }
      }
  };
  check(Float16(), DType::float16);
  check(BFloat16(), DType::bfloat16);
  check(float(), DType::float32);
  check(double(), DType::float64);
}

// The other collectives: parts of any sizes and of none, from one byte to many pieces, in memory of the
// communicator or elsewhere, in place or not.
TEST_P(Collectives, OtherCollectivesOfRandomSizes) {
  std::mt19937 random(seed(21));  // equal on all ranks
  const auto ranks = static_cast<std::size_t>(comm_->size), own = static_cast<std::size_t>(comm_->rank);
  for (unsigned round = 0; round < 40; ++round) {
    const std::size_t most = 1 + random() % (std::size_t{1} << random() % 18);
    const auto size_of_part = [&] { return random() % 4 == 0 ? 0 : random() % most; };
    const bool registered = random() % 2 == 0, in_place = random() % 2 == 0;
    const auto memory = [&](std::size_t bytes) {
      return registered ? comm_->allocate(bytes) : private_memory(bytes);
    };
    const DType types[] = {DType::float16, DType::float32, DType::float64};
    const auto dtype = types[random() % 3];
    const auto op = random() % 2 == 0 ? ReduceOp::sum : ReduceOp::average;
    std::vector<std::size_t> counts, bytes;
    for (std::size_t r = 0; r < ranks; ++r) {
      counts.push_back(size_of_part());
      bytes.push_back(counts.back() * size_of(dtype));
    }
    const auto total = sum(counts), first = sum(std::span(counts).first(own));
    const auto all_bytes = total * size_of(dtype), first_byte = first * size_of(dtype);
    const auto whole = reference(op, dtype, round, comm_->size);

    const auto all = memory(all_bytes), part = memory(bytes[own]);
    auto* const result = in_place ? all.get() + first_byte : part.get();
    fill(all.get(), dtype, total, round, comm_->rank);
    const std::vector<std::byte> before(all.get(), all.get() + all_bytes);
    comm_->reduce_scatter("test", all.get(), result, counts, dtype, op);
    ASSERT_EQ(first_wrong(result, dtype, counts[own], reference(op, dtype, round, comm_->size, first)),
              counts[own]);
    const auto end = in_place ? first_byte + bytes[own] : first_byte;
    ASSERT_TRUE(
        std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(first_byte), all.get()));
    ASSERT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(end), before.end(), all.get() + end));

    comm_->all_gather("test", result, all.get(), bytes);
    ASSERT_EQ(first_wrong(all.get(), dtype, total, whole), total);

    const int root = static_cast<int>(random() % ranks);
    if (comm_->rank != root) std::fill_n(all.get(), all_bytes, std::byte{0});
    comm_->broadcast("test", all.get(), all_bytes, root);
    ASSERT_EQ(first_wrong(all.get(), dtype, total, whole), total);

    std::vector<std::vector<std::size_t>> sends(ranks);
    for (auto& of_rank : sends)
      for (std::size_t to = 0; to < ranks; ++to) of_rank.push_back(size_of_part());
    std::vector<std::size_t> receives;
    std::vector<std::byte> expected;
    const auto in = memory(sum(sends[own]));
    auto* next = in.get();
    for (std::size_t r = 0; r < ranks; ++r) {
      next = std::fill_n(next, sends[own][r], static_cast<std::byte>(16 * own + r));
      receives.push_back(sends[r][own]);
      expected.insert(expected.end(), receives.back(), static_cast<std::byte>(16 * r + own));
    }
    const auto out = memory(expected.size());
    comm_->all_to_all("test", in.get(), sends[own], out.get(), receives);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.get()));
    if (random() % 4 == 0) comm_->barrier();
  }
}

// So a program may use either of them.
TEST_P(Collectives, AReduceScatterHasTheBitsOfAnAllreduce) {
  if (mpi_alone()) GTEST_SKIP() << "MPI chooses the order";
  std::mt19937 random(seed(24));  // equal on all ranks
  std::mt19937 own(seed(25) + static_cast<unsigned>(comm_->rank));
  for (const std::size_t most : {10, 1000, 50'000}) {
    std::vector<std::size_t> counts;
    for (int r = 0; r < comm_->size; ++r) counts.push_back(random() % most);
    const std::size_t before = sum(std::span(counts).first(static_cast<std::size_t>(comm_->rank)));
    std::vector<float> all(sum(counts)), part(counts[static_cast<std::size_t>(comm_->rank)]);
    for (auto& value : all)
      value = std::ldexp(static_cast<float>(own() % 1'000'003) - 500'000.0F, static_cast<int>(own() % 24));
    const auto op = all_ops[random() % all_ops.size()];
    comm_->reduce_scatter("part", all.data(), part.data(), counts, DType::float32, op);
    comm_->allreduce("all", all.data(), all.size(), DType::float32, op);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(before)))
        << all.size() << " elements, " << name_of(op);
  }
}

// 5 ranks with 60000 each exceed the largest float16 on every path.
TEST_P(Collectives, AverageOfFloat16DoesNotOverflow) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(comm_->size), 3);
  std::vector<Float16> data(3 * counts.size()), part(3);
  for (auto& value : data) from_float(60000.0f, value);
  comm_->reduce_scatter("test", data.data(), part.data(), counts, DType::float16, ReduceOp::average);
  comm_->allreduce("test", data.data(), data.size(), DType::float16, ReduceOp::average);
  data.insert(data.end(), part.begin(), part.end());
  for (const auto value : data) EXPECT_NEAR(to_float(value), 60000.0f, 100.0f);
}

TEST_P(Collectives, AllToAllNamesRanksWhoseSizesDiffer) {
  expect_named_sizes(0, "rank 0 sends 8 bytes to rank 1, which expects 9");
}

// A rank alone knows that its sizes do not fit.
TEST_P(Collectives, AllToAllNamesARankThatExpectsAnotherSizeOfItself) {
  expect_named_sizes(1, "rank 1 sends 8 bytes to rank 1, which expects 9");
}

// A reduction of real numbers, computed in float64.
struct RandomReduction {
  DType dtype;
  ReduceOp op;
  std::size_t count, offset;
  std::vector<std::byte> own;  // this rank's input
  std::vector<double> expected, magnitude;
};

// Equal on all ranks but for `own`.
std::vector<RandomReduction> random_reductions() {
  std::mt19937 random(seed(99));
  std::uniform_real_distribution<double> value(-2, 2);
  const DType types[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
  std::vector<RandomReduction> all(40);
  for (auto& [dtype, op, count, offset, own, expected, magnitude] : all) {
    dtype = types[random() % 4];
    op = all_ops[random() % all_ops.size()];
    count = random() % (std::size_t{1} << random() % 16);
    offset = random() % 40;
    own.resize(count * size_of(dtype));
    expected.resize(count);
    magnitude.resize(count);
    for (int r = 0; r < world->layout().size; ++r)
      for (std::size_t i = 0; i < count; ++i) {
        std::byte rounded[8];
        store(rounded, dtype, 0, value(random));
        const double x = load(rounded, dtype, 0);
        if (r == world->layout().rank) std::memcpy(own.data() + i * size_of(dtype), rounded, size_of(dtype));
        expected[i] = r == 0 ? x : combine(op, expected[i], x);
        magnitude[i] = std::max(std::abs(expected[i]), magnitude[i] + std::abs(x));
      }
  }
  return all;
}

// Real numbers at any offset of an allocated buffer must match float64 within the rounding of the type.
TEST_P(Collectives, RandomReductionsMatchFloat64) {
  static const auto all = random_reductions();  // the same for all ways
  for (const auto& [dtype, op, count, offset, own, expected, magnitude] : all) {
    auto buffer = comm_->allocate((offset + count) * size_of(dtype));
    auto* data = buffer.get() + offset * size_of(dtype);
    if (count > 0) std::memcpy(data, own.data(), own.size());
    comm_->allreduce("test", data, count, dtype, op);
    const double scaling = op == ReduceOp::average ? comm_->size : 1;
    for (std::size_t i = 0; i < count; ++i) {
      const double tolerated = magnitude[i] * (comm_->size + 1) * unit_roundoff(dtype) + 1e-6;
      if (!(std::abs(load(data, dtype, i) - expected[i] / scaling) <= tolerated))
        FAIL() << load(data, dtype, i) << " is not " << expected[i] / scaling << ": " << name_of(dtype) << " "
               << name_of(op) << " " << count << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Way, Collectives, testing::ValuesIn(ways()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace farandole
