// Ranks run out of work at different times. Results are compared with a reference computed
// from the active ranks.
#include <cstring>
#include <gmock/gmock.h>
#include <numeric>
#include <random>

#include "comm/mpi_world.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/comm/wrap/join_communicator.h"

namespace farandole {
namespace {

using testing::HasSubstr;

struct Joined {
  Joined()
      : comm(std::make_unique<TracedCommunicator>(world->new_communicator(Waiting::yielding), timeline, 0)) {}
  Timeline timeline;
  JoinCommunicator comm;
};

// The contribution of rank r to element i of a call.
double value(int call, int r, std::size_t i) {
  return 1 + (call * 7 + r * 3 + static_cast<int>(i)) % 5;
}

// The contribution of rank r to a call, which repeats after five elements.
std::vector<double> values(int call, int r, std::size_t count) {
  std::vector<double> all(count);
  for (std::size_t i = 0; i < std::min<std::size_t>(count, 5); ++i) all[i] = value(call, r, i);
  for (std::size_t done = 5; done < count; done *= 2)
    std::copy_n(all.begin(), std::min(done, count - done), all.begin() + static_cast<std::ptrdiff_t>(done));
  return all;
}

double reduced(ReduceOp op, int call, const std::vector<int>& active, std::size_t i, int divisor) {
  double result = value(call, active.front(), i);
  for (std::size_t a = 1; a < active.size(); ++a) {
    const double other = value(call, active[a], i);
    if (op == ReduceOp::min)
      result = std::min(result, other);
    else if (op == ReduceOp::max)
      result = std::max(result, other);
    else if (op == ReduceOp::product)
      result *= other;
    else
      result += other;
  }
  return op == ReduceOp::average ? result / divisor : result;
}

std::vector<int> still_active(const std::vector<int>& calls_by_rank, int call) {
  std::vector<int> active;
  for (std::size_t r = 0; r < calls_by_rank.size(); ++r)
    if (calls_by_rank[r] > call) active.push_back(static_cast<int>(r));
  return active;
}

constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                            ReduceOp::product};

void check_allreduce(Communicator& comm, int call, const std::vector<int>& active, std::size_t count,
                     bool over_all) {
  const ReduceOp op = ops[call % 5];
  auto data = values(call, comm.rank, count);
  comm.allreduce("numbers", data.data(), count, DType::float64, op);
  const int divisor = over_all ? comm.size : static_cast<int>(active.size());
  for (std::size_t i = 0; i < count; i += 1 + count / 7)
    ASSERT_NEAR(data[i], reduced(op, call, active, i, divisor), 1e-9) << name_of(op);
}

void check_all_gather(Communicator& comm, int call, const std::vector<int>& active, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(comm.size);
  std::vector<std::size_t> bytes(ranks);
  for (std::size_t r = 0; r < ranks; ++r) bytes[r] = (count + r) * sizeof(double);
  const auto own = values(call, comm.rank, count + static_cast<std::size_t>(comm.rank));
  std::vector<double> all(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}) / sizeof(double), -1);
  comm.all_gather("parts", own.data(), all.data(), bytes);
  std::vector<double> expected;
  for (std::size_t r = 0; r < ranks; ++r) {
    const bool there = std::count(active.begin(), active.end(), static_cast<int>(r)) > 0;
    const auto part = there ? values(call, static_cast<int>(r), count + r) : std::vector<double>(count + r);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  ASSERT_TRUE(all == expected);
}

void check_broadcast(Communicator& comm, int call, const std::vector<int>& active, std::size_t count) {
  const int root = active[static_cast<std::size_t>(call) % active.size()];
  std::vector<double> data(count, value(call, comm.rank, 0));
  comm.broadcast("root's", data.data(), count * sizeof(double), root);
  ASSERT_TRUE(data == std::vector<double>(count, value(call, root, 0)));
}

void check_reduce_scatter(Communicator& comm, int call, const std::vector<int>& active, std::size_t count) {
  const ReduceOp op = ops[(call / 5) % 5];
  const auto ranks = static_cast<std::size_t>(comm.size), own = static_cast<std::size_t>(comm.rank);
  std::vector<std::size_t> shares(ranks);
  for (std::size_t r = 0; r < ranks; ++r) shares[r] = count + 3 * r;
  const auto in = values(call, comm.rank, std::accumulate(shares.begin(), shares.end(), std::size_t{0}));
  std::vector<double> out(shares[own]);
  comm.reduce_scatter("shares", in.data(), out.data(), shares, DType::float64, op);
  const auto before = std::accumulate(shares.begin(), shares.begin() + comm.rank, std::size_t{0});
  for (std::size_t i = 0; i < out.size(); i += 1 + count / 5)
    ASSERT_NEAR(out[i], reduced(op, call, active, before + i, static_cast<int>(active.size())), 1e-9);
}

void check_all_to_all(Communicator& comm, int call, const std::vector<int>& active, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(comm.size);
  const auto elements = [&](int from, int to) { return count + static_cast<std::size_t>(from + 2 * to); };
  std::vector<std::size_t> send(ranks), receive(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    send[r] = elements(comm.rank, static_cast<int>(r)) * sizeof(double);
    receive[r] = elements(static_cast<int>(r), comm.rank) * sizeof(double);
  }
  std::vector<double> in(std::accumulate(send.begin(), send.end(), std::size_t{0}) / sizeof(double),
                         value(call, comm.rank, 0));
  std::vector<double> out(std::accumulate(receive.begin(), receive.end(), std::size_t{0}) / sizeof(double),
                          -1);
  comm.all_to_all("blocks", in.data(), send, out.data(), receive);
  std::vector<double> expected;
  for (int r = 0; r < comm.size; ++r)
    expected.insert(expected.end(), elements(r, comm.rank),
                    std::count(active.begin(), active.end(), r) > 0 ? value(call, r, 0) : 0.0);
  ASSERT_TRUE(out == expected);
}

// Some calls of each rank, of random kinds and sizes. The same on all ranks, but for how many each makes.
struct Calls {
  Calls(std::mt19937& random, int ranks) {
    for (int r = 0; r < ranks; ++r) by_rank.push_back(static_cast<int>(random() % 40));
    longest = *std::max_element(by_rank.begin(), by_rank.end());
    for (int i = 0; i < 2 * longest; ++i) picks.push_back(static_cast<unsigned>(random()));
  }
  int own(const Communicator& comm) const { return by_rank[static_cast<std::size_t>(comm.rank)]; }

  std::vector<int> by_rank;
  int longest = 0;
  std::vector<unsigned> picks;
};

void make_own(const Calls& calls, Communicator& comm, bool over_all) {
  for (int call = 0; call < calls.own(comm); ++call) {
    const auto active = still_active(calls.by_rank, call);
    const auto* const picks = calls.picks.data() + 2 * call;
    const std::size_t count = picks[0] % (call % 4 == 0 ? 70'000 : 60);
    switch (picks[1] % 6) {
      case 0:
        check_allreduce(comm, call, active, count, over_all);
        break;
      case 1:
        check_all_gather(comm, call, active, count);
        break;
      case 2:
        check_broadcast(comm, call, active, count);
        break;
      case 3:
        if (!over_all) check_reduce_scatter(comm, call, active, count);
        break;
      case 4:
        check_all_to_all(comm, call, active, count);
        break;
      default:
        comm.barrier();
    }
    ASSERT_FALSE(testing::Test::HasFatalFailure());
  }
}

TEST(Join, CoversEveryCollectiveUntilAllHaveStopped) {
  Joined joined;
  auto& comm = joined.comm;
  std::mt19937 random(seed(5));  // equal on all ranks
  for (int round = 0; round < 12; ++round) {
    const bool over_all = round % 3 == 2;
    const Calls calls(random, comm.size);
    comm.join(over_all);
    make_own(calls, comm, over_all);
    EXPECT_LE(comm.shadow(), static_cast<std::size_t>(calls.longest - calls.own(comm)));
    EXPECT_FALSE(comm.joining());
    EXPECT_EQ(comm.active(), comm.size);
    check_allreduce(comm, round, still_active(std::vector<int>(calls.by_rank.size(), 1), 0), 10,
                    false);  // as before
  }
}

TEST(Join, NeedsNoNoticeIfItAsks) {
  Timeline timeline;
  TracedCommunicator comm(world->new_communicator(Waiting::yielding), timeline, 0);
  auto& join = comm.wrap<JoinCommunicator>();
  std::mt19937 random(seed(6));
  for (int round = 0; round < 6; ++round) {
    const Calls calls(random, comm.size);
    make_own(calls, comm, true);
    join.stop();
    int shadowed = 0;
    for (; comm.barrier("join"), join.active() > 0;) ++shadowed;
    join.go_on();
    EXPECT_LE(shadowed, calls.longest - calls.own(comm));
    check_allreduce(comm, round, still_active(std::vector<int>(calls.by_rank.size(), 1), 0), 10, true);
  }
}

TEST(Join, NeutralInEveryTypeAndReduction) {
  Joined joined;
  auto& comm = joined.comm;
  const int last = comm.size - 1;  // the last active rank
  comm.join();
  if (comm.rank != last) {
    comm.shadow();
    return;
  }
  const auto unchanged = [&](auto one, DType dtype, std::initializer_list<ReduceOp> which) {
    for (const auto op : which) {
      auto data = one;
      comm.allreduce("one", &data, 1, dtype, op);
      EXPECT_EQ(std::memcmp(&data, &one, sizeof one), 0) << name_of(dtype) << " " << name_of(op);
    }
  };
  using enum ReduceOp;
  for (const float number : {-2.0f, 0.0f, 3.5f}) {
    unchanged(number, DType::float32, {sum, average, min, max, product});
    unchanged(static_cast<double>(number), DType::float64, {sum, average, min, max, product});
    unchanged(static_cast<std::int32_t>(number), DType::int32, {sum, min, max, product});
    unchanged(static_cast<std::int64_t>(number), DType::int64, {sum, min, max, product});
  }
  for (const std::uint16_t half : {0x3c00, 0xc000, 0x0000}) {
    unchanged(half, DType::float16, {sum, min, max, product});
    unchanged(half, DType::bfloat16, {sum, min, max, product});
  }
  unchanged(std::uint8_t{7}, DType::uint8, {sum, min, max, product});
  unchanged(std::int8_t{-7}, DType::int8, {sum, min, max, product});
  unchanged(std::int16_t{-7}, DType::int16, {sum, min, max, product});
  unchanged(true, DType::boolean, {min, max});
  unchanged(false, DType::boolean, {min, max});
  comm.shadow();
}

TEST(Join, ABroadcastFromARankThatHasStoppedIsRefusedOnAll) {
  if (world->layout().size < 2) GTEST_SKIP() << "needs two ranks";
  Joined joined;
  joined.comm.join();
  std::string told;
  try {
    double number = 1;
    if (joined.comm.rank == 0)
      joined.comm.shadow();
    else
      joined.comm.broadcast("news", &number, sizeof number, 0);
  } catch (const UserError& error) {
    told = error.what();
  }
  EXPECT_THAT(told, HasSubstr("'news' from rank 0"));
  EXPECT_FALSE(joined.comm.joining());  // no rank waits for another one
  joined.comm.barrier();
}

TEST(Join, DifferentCallsAreToldOnAllAlsoOnThoseThatHaveStopped) {
  if (world->layout().size < 3) GTEST_SKIP() << "needs three ranks";
  Joined joined;
  joined.comm.join();
  std::string told;
  try {
    double number = 1;
    if (joined.comm.rank == 1)
      joined.comm.shadow();
    else
      joined.comm.allreduce(joined.comm.rank == 0 ? "left" : "right", &number, 1, DType::float64,
                            ReduceOp::sum);
  } catch (const UserError& error) {
    told = error.what();
  }
  EXPECT_THAT(told, HasSubstr("'left'"));
  EXPECT_THAT(told, HasSubstr("'right'"));
  EXPECT_FALSE(joined.comm.joining());
  joined.comm.barrier();
}

}  // namespace
}  // namespace farandole
