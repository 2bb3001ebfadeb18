#include "farandole/comm/node_sharing.h"

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "error_message.h"
#include "fusion/thread_world.h"

#include "farandole/base/error.h"
#include "farandole/comm/shm/shared_memory_communicator.h"

namespace farandole {
namespace {

// Ranks are threads. Each maps the memory for itself.
void share_on(int size, const std::function<void(SharedMemoryCommunicator&)>& body) {
  ThreadWorld::run(size, [&](Communicator& exchange) {
    SharedMemoryCommunicator communicator(exchange, {.arena_bytes = std::size_t{64} << 20});
    body(communicator);
  });
}

TEST(NodeSharing, IsThereIfThereAreSeveralRanks) {
  for (int size = 1; size <= 3; ++size)
    share_on(size, [](SharedMemoryCommunicator& ranks) {
      EXPECT_EQ(ranks.node_sharing() != nullptr, ranks.size > 1);
    });
}

TEST(NodeSharing, PartsCoverAllElements) {
  for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 100u, 1024u, 99999u})
    for (int ranks = 1; ranks <= 7; ++ranks) {
      std::size_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto [first, last] = NodeSharing::node_part(count, 4, r, ranks);
        EXPECT_EQ(first, next);
        EXPECT_TRUE(first % 16 == 0 || first == count);
        next = last;
      }
      EXPECT_EQ(next, count);
    }
}

TEST(NodeSharing, BlocksAreTheSameMemoryUntilTheyAreMadePrivate) {
  const std::vector<std::size_t> bytes = {100, 300'000, 0, 5};
  for (int size = 2; size <= 4; ++size)
    share_on(size, [&](SharedMemoryCommunicator& ranks) {
      const auto memory = ranks.map(bytes, Views::no);
      const auto& blocks = memory->blocks();
      ASSERT_EQ(blocks.size(), bytes.size());
      for (std::size_t b = 0; b < bytes.size(); ++b)
        EXPECT_TRUE(std::all_of(blocks[b], blocks[b] + bytes[b],
                                [](std::byte byte) { return byte == std::byte{0}; }));
      ranks.meet("before");
      const auto mark = [](int rank) { return static_cast<std::byte>(rank + 1); };
      for (std::size_t b = 0; b < bytes.size(); ++b) {
        const auto [first, last] = ranks.own_part(bytes[b], 1);
        std::fill(blocks[b] + first, blocks[b] + last, mark(ranks.rank));
      }
      ranks.meet("written");
      for (std::size_t b = 0; b < bytes.size(); ++b)
        for (int r = 0; r < ranks.size; ++r) {
          const auto [first, last] = NodeSharing::node_part(bytes[b], 1, r, ranks.size);
          EXPECT_EQ(std::count(blocks[b] + first, blocks[b] + last, mark(r)), last - first);
        }
      ranks.meet("read");
      memory->make_private();
      ranks.meet("private");
      blocks[1][7] = mark(10 + ranks.rank);
      ranks.meet("written again");
      EXPECT_EQ(blocks[1][7], mark(10 + ranks.rank));
      EXPECT_EQ(blocks[1][8], mark(0));
    });
}

TEST(NodeSharing, ViewsKeepWhatTheirRankWrites) {
  const std::vector<std::size_t> bytes = {300'000, 0, 70'000};
  for (int size = 2; size <= 4; ++size)
    share_on(size, [&](SharedMemoryCommunicator& ranks) {
      EXPECT_TRUE(ranks.map(bytes, Views::no)->views().empty());
      const auto memory = ranks.map(bytes, Views::yes);
      const auto& blocks = memory->blocks();
      const auto& views = memory->views();
      ASSERT_EQ(views.size(), bytes.size());
      const auto mark = [](int value) { return static_cast<std::byte>(value); };
      // Read before and after, so that the pages are there.
      const auto sees = [&](int value) {
        return views[2][5] == mark(value) && views[2][60'000] == mark(value) &&
               views[0][299'999] == mark(value);
      };
      const auto write = [&](const std::vector<std::byte*>& places, int value) {
        places[2][5] = places[2][60'000] = places[0][299'999] = mark(value);
      };
      for (int round = 1; round <= 3; ++round) {
        if (ranks.rank == 0) write(blocks, round);
        ranks.meet("written");
        EXPECT_TRUE(sees(round));
        EXPECT_FALSE(memory->has_changes());
        ranks.meet("read");
        if (ranks.rank == 1) write(views, 10 + round);
        ranks.meet("changed");
        EXPECT_EQ(memory->has_changes(), ranks.rank == 1);
        EXPECT_TRUE(sees(ranks.rank == 1 ? 10 + round : round));
        EXPECT_EQ(blocks[2][5], mark(round));
        ranks.meet("compared");
        if (ranks.rank == 0) write(blocks, 20 + round);
        ranks.meet("written over");
        EXPECT_TRUE(sees(ranks.rank == 1 ? 10 + round : 20 + round));
        memory->drop_changes();
        EXPECT_FALSE(memory->has_changes());
        EXPECT_TRUE(sees(20 + round));
        ranks.meet("dropped");
      }
      // A change of one byte on the last page is found as well.
      views[2][69'999] = mark(1);
      EXPECT_TRUE(memory->has_changes());
    });
}

TEST(NodeSharing, BorrowsTheDataOfAllRanks) {
  share_on(3, [](SharedMemoryCommunicator& ranks) {
    constexpr std::size_t count = 5000;
    const auto own = ranks.allocate(count * sizeof(float));
    for (int round = 0; round < 20; ++round) {
      std::fill_n(reinterpret_cast<float*>(own.get()), count, static_cast<float>(100 * round + ranks.rank));
      const auto all = ranks.borrow("data", own.get(), count, DType::float32, ReduceOp::sum);
      ASSERT_EQ(all.size(), 3u);
      for (int r = 0; r < 3; ++r)
        EXPECT_EQ(reinterpret_cast<const float*>(all[static_cast<std::size_t>(r)])[count - 1],
                  static_cast<float>(100 * round + r));
      ranks.give_back();
      ranks.meet("read");
    }
  });
}

TEST(NodeSharing, ComparesWhatIsBorrowed) {
  share_on(2, [](SharedMemoryCommunicator& ranks) {
    const auto own = ranks.allocate(4000);
    const auto* const name = ranks.rank == 0 ? "bucket 1" : "bucket 2";
    EXPECT_THROW(ranks.borrow(name, own.get(), 1000, DType::float32, ReduceOp::sum), UserError);
  });
}

TEST(NodeSharing, SaysOnAllRanksWhyThereIsNoMemory) {
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  share_on(2, [&](SharedMemoryCommunicator& ranks) {
    if (ranks.rank == 0) {
      const rlimit low{std::size_t{1} << 20, old.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &low);
    }
    ranks.meet("limited");
    EXPECT_THAT(
        message_of<Error>([&] { ranks.map(std::vector<std::size_t>{std::size_t{8} << 20}, Views::no); }),
        testing::HasSubstr("ulimit -f"));
    ranks.meet("tried");
    if (ranks.rank == 0) ::setrlimit(RLIMIT_FSIZE, &old);
    ranks.meet("restored");
    EXPECT_EQ(ranks.map(std::vector<std::size_t>{std::size_t{8} << 20}, Views::no)->blocks().size(), 1u);
  });
}

}  // namespace
}  // namespace farandole
