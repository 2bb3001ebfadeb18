#include "farandole/comm/watch/status_board.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "child.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

RankStatus status_of(int rank, std::uint64_t bytes) {
  RankStatus status{.rank = rank, .pid = 100 + rank, .life = Life::running, .calls_used = 1};
  status.calls[0].bytes = bytes;
  status.calls[RankStatus::most_calls - 1].bytes = bytes;
  store_text(status.span, "load");
  return status;
}

LostRank lost_rank(int rank, std::string_view cause) {
  LostRank lost{.rank = rank};
  store_text(lost.cause, cause);
  return lost;
}

TEST(StatusBoard, ShowsWhatOtherProcessesPublish) {
  const auto board = StatusBoard::create(3);
  EXPECT_EQ(board->read(1).rank, -1);
  const auto address = board->address();
  Child child([&] {
    const auto mine = StatusBoard::open(address, 3);
    mine->publish(2, status_of(7, 99), 1234);
    mine->leave(2);
    mine->ask({3, 0x80000005u}, 77);
    mine->post_loss(lost_rank(5, "killed by SIGKILL"));
    return 0;
  });
  child.await_end();
  EXPECT_EQ(board->read(2).rank, 7);
  EXPECT_EQ(board->read(2).calls[0].bytes, 99u);
  EXPECT_STREQ(board->read(2).span, "load");
  EXPECT_EQ(board->published_ns(2), 1234);
  EXPECT_TRUE(board->left(2));
  EXPECT_FALSE(board->left(1));
  ASSERT_TRUE(board->question());
  EXPECT_EQ(board->question()->stalled, (CallKey{3, 0x80000005u}));
  EXPECT_EQ(board->question()->asked_ns, 77);
  board->post_loss(lost_rank(6, "too late"));
  ASSERT_TRUE(board->loss());
  EXPECT_EQ(board->loss()->rank, 5);
  EXPECT_STREQ(board->loss()->cause, "killed by SIGKILL");
  EXPECT_FALSE(board->ending());
  EXPECT_TRUE(board->post_ending());
  EXPECT_FALSE(board->post_ending()) << "only one rank says why the job ends";
  EXPECT_TRUE(board->ending());
}

TEST(StatusBoard, IsEmptyAtFirst) {
  const auto board = StatusBoard::alone();
  EXPECT_EQ(board->slots(), 1u);
  EXPECT_EQ(board->read(0).rank, -1);
  EXPECT_FALSE(board->question());
  EXPECT_FALSE(board->loss());
  board->ask({0, 0}, 1);
  EXPECT_TRUE(board->question()) << "the first collective of the first communicator";
}

TEST(StatusBoard, RefusesWhatIsNoBoard) {
  const auto board = StatusBoard::create(1);
  auto wrong = board->address();
  wrong.token += 1;
  EXPECT_THROW(StatusBoard::open(wrong, 1), Error);
  wrong = board->address();
  wrong.fd = 12345;
  EXPECT_THROW(StatusBoard::open(wrong, 1), Error);
}

TEST(StatusBoard, ReadersSeeNoMixture) {
  const auto board = StatusBoard::create(1);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop; ++i) {
      board->publish(0, status_of(0, i), 0);
      std::this_thread::sleep_for(std::chrono::microseconds(1));
    }
  });
  while (board->read(0).rank < 0) std::this_thread::yield();
  for (int i = 0; i < 5'000; ++i) {
    const auto status = board->read(0);
    ASSERT_EQ(status.calls[0].bytes, status.calls[RankStatus::most_calls - 1].bytes);
  }
  stop = true;
  writer.join();
}

// If a rank is killed while it publishes, its slot must still be readable.
TEST(StatusBoard, OutlivesItsWriters) {
  const auto board = StatusBoard::create(1);
  for (int i = 0; i < 20; ++i) {
    Child child([&] {
      for (std::uint64_t n = 1;; ++n) board->publish(0, status_of(0, n), 0);
      return 0;
    });
    while (board->read(0).rank < 0) std::this_thread::yield();
    child.reap(SIGKILL);
    EXPECT_EQ(board->read(0).pid, 100);
  }
}

}  // namespace
}  // namespace farandole
