#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <list>
#include <numeric>
#include <random>
#include <vector>

#include "comm/mpi_world.h"
#include "comm/typed_values.h"
#include "lane.h"

#include "farandole/comm/queue/collectives_of_root.h"
#include "farandole/comm/queue/operation_queue.h"

namespace farandole {
namespace {

// Each rank starts and awaits the operations of its queues in an order of its own. Only the order within a
// queue is common.
TEST(Queues, RanksUseThemInDifferentOrders) {
  const int rank = world->layout().rank, size = world->layout().size;
  std::mt19937 own(seed(31) + static_cast<unsigned>(rank));
  Tickets tickets;
  std::vector<std::unique_ptr<OperationQueue>> queues;
  for (int q = 0; q < 3; ++q)
    queues.push_back(std::make_unique<OperationQueue>(world->new_communicator(Waiting::yielding), tickets));
  for (int round = 0; round < rounds(20, 1000); ++round) {
    struct Sum {
      Ticket ticket;
      std::vector<std::int64_t> values;
      std::int64_t expected;
    };
    std::list<Sum> sums;
    std::vector<std::size_t> order;
    for (std::size_t q = 0; q < queues.size(); ++q) order.insert(order.end(), 4, q);
    if (round % 2 == 0)
      std::shuffle(order.begin(), order.end(), own);
    else if (rank % 2 == 0)
      std::reverse(order.begin(), order.end());
    std::vector<int> calls(queues.size());
    for (const auto q : order) {
      const int call = calls[q]++;
      const auto count = static_cast<std::size_t>(1 + call * 1000);
      auto& sum = sums.emplace_back();
      sum.values.assign(count, rank + 10 * call);
      sum.expected = size * (size - 1) / 2 + 10 * call * size;
      sum.ticket = queues[q]->start([&sum, count](Communicator& ranks) {
        ranks.allreduce("sum", sum.values.data(), count, DType::int64, ReduceOp::sum);
      });
    }
    std::vector<Sum*> awaited;
    for (auto& sum : sums) awaited.push_back(&sum);
    std::shuffle(awaited.begin(), awaited.end(), own);
    for (auto* const sum : awaited) {
      if (own() % 3 == 0) {
        tickets.notify(sum->ticket);
        continue;
      }
      ASSERT_TRUE(tickets.wait(sum->ticket));
      for (const auto value : sum->values) ASSERT_EQ(value, sum->expected);
      sum->ticket = 0;
    }
    for (auto left = std::count_if(sums.begin(), sums.end(), [](const Sum& sum) { return sum.ticket != 0; });
         left > 0; --left) {
      const auto done = tickets.next_done();
      const auto sum =
          std::find_if(sums.begin(), sums.end(), [&](const Sum& one) { return one.ticket == done->ticket; });
      ASSERT_NE(sum, sums.end());
      for (const auto value : sum->values) ASSERT_EQ(value, sum->expected);
    }
    queues[static_cast<std::size_t>(round) % queues.size()]->run(
        [](Communicator& ranks) { ranks.barrier(); });
  }
}

class CollectivesOfRoot : public testing::Test {
 protected:
  int size() const { return ranks_->size; }
  int rank() const { return ranks_->rank; }

  std::mt19937 random_{seed(32)};  // equal on all ranks
  const std::unique_ptr<Communicator> ranks_ = world->new_communicator(Waiting::spin);
  ScratchBuffer scratch_;
};

TEST_F(CollectivesOfRoot, ReduceGivesTheRootTheResult) {
  for (unsigned round = 0; round < 150; ++round) {
    const auto dtype = all_dtypes[random_() % std::size(all_dtypes)];
    const auto op = static_cast<ReduceOp>(random_() % 5);
    if (!can_reduce(op, dtype)) continue;
    const std::size_t count = random_() % (std::size_t{1} << random_() % 20);
    const int root = static_cast<int>(random_() % static_cast<unsigned>(size()));
    std::vector<std::byte> data(count * size_of(dtype));
    fill(data.data(), dtype, count, round, rank());
    const auto before = data;
    reduce(*ranks_, scratch_, "test", data.data(), count, dtype, op, root);
    if (rank() != root) {
      ASSERT_EQ(data, before);
    } else {
      ASSERT_EQ(first_wrong(data.data(), dtype, count, reference(op, dtype, round, size())), count)
          << name_of(dtype) << " " << name_of(op);
    }
  }
}

TEST_F(CollectivesOfRoot, GatherAndScatterMoveTheRootsData) {
  for (unsigned round = 0; round < 100; ++round) {
    const std::size_t bytes = random_() % (std::size_t{1} << random_() % 20);
    const int root = static_cast<int>(random_() % static_cast<unsigned>(size()));
    std::vector<std::byte> all;
    for (int r = 0; r < size(); ++r)
      for (std::size_t i = 0; i < bytes; ++i)
        all.push_back(static_cast<std::byte>(i * 7 + static_cast<std::size_t>(r) * 31 + round));
    const auto own = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rank()) * bytes);
    const std::vector<std::byte> part(own, own + static_cast<std::ptrdiff_t>(bytes));
    std::vector<std::byte> gathered(rank() == root ? all.size() : 0), scattered(bytes);
    gather(*ranks_, "test", part.data(), gathered.data(), bytes, root);
    ASSERT_EQ(gathered, rank() == root ? all : std::vector<std::byte>());
    scatter(*ranks_, "test", rank() == root ? all.data() : nullptr, scattered.data(), bytes, root);
    ASSERT_EQ(scattered, part);
  }
}

TEST_F(CollectivesOfRoot, ARootOutsideOfTheGroupIsRefused) {
  std::byte byte{};
  for (const int root : {-1, size()}) {
    EXPECT_THROW(reduce(*ranks_, scratch_, "test", &byte, 1, DType::uint8, ReduceOp::sum, root), UserError);
    EXPECT_THROW(gather(*ranks_, "test", &byte, &byte, 1, root), UserError);
    EXPECT_THROW(scatter(*ranks_, "test", &byte, &byte, 1, root), UserError);
  }
}

}  // namespace
}  // namespace farandole
