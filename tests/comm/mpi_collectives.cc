#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "comm/mpi_world.h"

#include "farandole/base/error.h"
#include "farandole/comm/float16.h"

namespace farandole {
namespace {

// Element i of rank r in a case: small integers, so that every type and every order of summation is exact.
int element(unsigned seed, int rank, std::size_t i) {
  return static_cast<int>(
             (seed * 7919u + static_cast<unsigned>(rank) * 104729u + static_cast<unsigned>(i) * 31u) % 3u) +
         1;
}

void store(std::byte* data, DType dtype, std::size_t i, double value) {
  const auto put = [&](auto typed) { std::memcpy(data + i * sizeof typed, &typed, sizeof typed); };
  switch (dtype) {
    case DType::float16: {
      Float16 half{};
      from_float(static_cast<float>(value), half);
      return put(half);
    }
    case DType::bfloat16: {
      BFloat16 half{};
      from_float(static_cast<float>(value), half);
      return put(half);
    }
    case DType::float32:
      return put(static_cast<float>(value));
    case DType::float64:
      return put(value);
    case DType::int32:
      return put(static_cast<std::int32_t>(value));
    case DType::int64:
      return put(static_cast<std::int64_t>(value));
    case DType::uint8:
      return put(static_cast<std::uint8_t>(value));
    case DType::boolean:
      return put(value > 1);
  }
}

double load(const std::byte* data, DType dtype, std::size_t i) {
  const auto get = [&](auto typed) {
    std::memcpy(&typed, data + i * sizeof typed, sizeof typed);
    return typed;
  };
  switch (dtype) {
    case DType::float16:
      return to_float(get(Float16{}));
    case DType::bfloat16:
      return to_float(get(BFloat16{}));
    case DType::float32:
      return get(float{});
    case DType::float64:
      return get(double{});
    case DType::int32:
      return get(std::int32_t{});
    case DType::int64:
      return static_cast<double>(get(std::int64_t{}));
    case DType::uint8:
      return get(std::uint8_t{});
    case DType::boolean:
      return get(bool{}) ? 1 : 0;
  }
  return 0;
}

double reference(ReduceOp op, DType dtype, unsigned seed, int size, std::size_t i) {
  const bool logical = dtype == DType::boolean;
  double result = 0;
  for (int r = 0; r < size; ++r) {
    const double value = logical ? (element(seed, r, i) > 1 ? 1 : 0) : element(seed, r, i);
    if (r == 0)
      result = value;
    else if (op == ReduceOp::sum || op == ReduceOp::average)
      result += value;
    else if (op == ReduceOp::min)
      result = std::min(result, value);
    else if (op == ReduceOp::max)
      result = std::max(result, value);
    else
      result *= value;
  }
  return op == ReduceOp::average ? result / size : result;
}

const std::vector<DType> all_types = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                                      DType::int32,   DType::int64,    DType::uint8,   DType::boolean};
const std::vector<ReduceOp> all_ops = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                                       ReduceOp::product};
const std::vector<std::size_t> sizes = {0, 1, 2, 3, 7, 64, 1023, 65537, 1000003};

double tolerance(DType dtype) {
  return dtype == DType::bfloat16 ? 1e-2 : dtype == DType::float16 ? 2e-3 : 1e-6;
}

class Collectives : public testing::TestWithParam<Waiting> {
 protected:
  std::unique_ptr<Communicator> comm_ = world->new_communicator(GetParam());
};

TEST_P(Collectives, AllreduceMatchesTheReference) {
  unsigned seed = 0;
  for (const auto dtype : all_types) {
    for (const auto op : all_ops) {
      for (const auto count : sizes) {
        ++seed;
        auto buffer = comm_->allocate(count * size_of(dtype));
        for (std::size_t i = 0; i < count; ++i) store(buffer.get(), dtype, i, element(seed, comm_->rank, i));
        try {
          comm_->allreduce("test", buffer.get(), count, dtype, op);
        } catch (const UserError& error) {
          const bool refused = (dtype == DType::boolean && op == ReduceOp::sum) ||
                               (op == ReduceOp::average && dtype >= DType::int32);
          EXPECT_TRUE(refused) << error.what();
          continue;
        }
        for (std::size_t i = 0; i < count; i += std::max<std::size_t>(1, count / 97)) {
          const double expected = reference(op, dtype, seed, comm_->size, i);
          ASSERT_NEAR(load(buffer.get(), dtype, i), expected, std::abs(expected) * tolerance(dtype))
              << name_of(dtype) << " " << name_of(op) << " " << count << " at " << i;
        }
      }
    }
  }
}

TEST_P(Collectives, AllreduceIsBitwiseEqualOnAllRanks) {
  std::mt19937 random(static_cast<unsigned>(comm_->rank) + 17);
  std::normal_distribution<float> normal(0, 1e3);
  std::vector<float> data(100'003);
  for (auto& value : data) value = normal(random);
  comm_->allreduce("test", data.data(), data.size(), DType::float32, ReduceOp::average);
  auto of_root = data;
  comm_->broadcast("test", of_root.data(), of_root.size() * sizeof(float), 0);
  EXPECT_EQ(std::memcmp(data.data(), of_root.data(), data.size() * sizeof(float)), 0);
}

TEST_P(Collectives, AverageOfFloat16DoesNotOverflow) {
  std::vector<Float16> data(5);
  for (auto& value : data) from_float(60000.0f, value);
  comm_->allreduce("test", data.data(), data.size(), DType::float16, ReduceOp::average);
  for (const auto value : data) EXPECT_NEAR(to_float(value), 60000.0f, 100.0f);
}

TEST_P(Collectives, AllGatherOfDifferentSizes) {
  for (const std::size_t unit : {0u, 1u, 5u, 40001u}) {
    std::vector<std::size_t> bytes;
    for (int r = 0; r < comm_->size; ++r) bytes.push_back(unit * static_cast<std::size_t>(r));
    std::vector<std::uint8_t> own(bytes[static_cast<std::size_t>(comm_->rank)],
                                  static_cast<std::uint8_t>(comm_->rank + 1));
    std::vector<std::uint8_t> all(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
    comm_->all_gather("test", own.data(), all.data(), bytes);
    std::size_t i = 0;
    for (int r = 0; r < comm_->size; ++r)
      for (std::size_t n = 0; n < bytes[static_cast<std::size_t>(r)]; ++n, ++i) ASSERT_EQ(all[i], r + 1);
  }
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  for (int root = 0; root < comm_->size; ++root) {
    for (const std::size_t count : sizes) {
      std::vector<std::uint8_t> data(count, static_cast<std::uint8_t>(comm_->rank));
      comm_->broadcast("test", data.data(), data.size(), root);
      EXPECT_EQ(std::count(data.begin(), data.end(), static_cast<std::uint8_t>(root)),
                static_cast<std::ptrdiff_t>(count));
    }
  }
}

TEST_P(Collectives, ReduceScatterOfUnevenShares) {
  for (const std::size_t unit : {0u, 1u, 3u, 5003u}) {
    std::vector<std::size_t> counts;
    for (int r = 0; r < comm_->size; ++r) counts.push_back(unit * static_cast<std::size_t>(r + 1));
    const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    std::vector<double> in(total), out(counts[static_cast<std::size_t>(comm_->rank)]);
    for (std::size_t i = 0; i < total; ++i) in[i] = element(5, comm_->rank, i);
    comm_->reduce_scatter("test", in.data(), out.data(), counts, DType::float64, ReduceOp::average);
    const auto first = std::accumulate(counts.begin(), counts.begin() + comm_->rank, std::size_t{0});
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_DOUBLE_EQ(out[i], reference(ReduceOp::average, DType::float64, 5, comm_->size, first + i));
  }
}

TEST_P(Collectives, AllToAllOfUnevenShares) {
  for (const std::size_t unit : {0u, 1u, 7u, 20011u}) {
    const auto share = [&](int from, int to) { return unit * static_cast<std::size_t>(from + 2 * to); };
    std::vector<std::size_t> sends, receives;
    std::vector<std::uint8_t> in;
    for (int r = 0; r < comm_->size; ++r) {
      sends.push_back(share(comm_->rank, r));
      receives.push_back(share(r, comm_->rank));
      in.insert(in.end(), sends.back(), static_cast<std::uint8_t>(16 * comm_->rank + r));
    }
    std::vector<std::uint8_t> out(std::accumulate(receives.begin(), receives.end(), std::size_t{0}));
    comm_->all_to_all("test", in.data(), sends, out.data(), receives);
    std::size_t i = 0;
    for (int r = 0; r < comm_->size; ++r)
      for (std::size_t n = 0; n < receives[static_cast<std::size_t>(r)]; ++n, ++i)
        ASSERT_EQ(out[i], 16 * r + comm_->rank);
  }
}

TEST_P(Collectives, RandomSequencesInTheSameOrder) {
  std::mt19937 random(4);  // the same on all ranks
  for (int round = 0; round < 200; ++round) {
    const auto count = static_cast<std::size_t>(random() % 5000);
    std::vector<std::int64_t> data(count, comm_->rank + 1);
    if (random() % 2 == 0) {
      comm_->allreduce("test", data.data(), count, DType::int64, ReduceOp::sum);
      const std::int64_t expected = comm_->size * (comm_->size + 1) / 2;
      for (const auto value : data) ASSERT_EQ(value, expected);
    } else {
      const int root = static_cast<int>(random() % static_cast<unsigned>(comm_->size));
      comm_->broadcast("test", data.data(), count * sizeof data[0], root);
      for (const auto value : data) ASSERT_EQ(value, root + 1);
    }
    if (random() % 10 == 0) comm_->barrier();
  }
}

INSTANTIATE_TEST_SUITE_P(Waiting, Collectives, testing::Values(Waiting::spin, Waiting::polite),
                         [](const auto& parameter) {
                           return parameter.param == Waiting::spin ? "Spin" : "Polite";
                         });

}  // namespace
}  // namespace farandole
