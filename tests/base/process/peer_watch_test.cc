#include <gmock/gmock.h>
#include <poll.h>

#include "child.h"

#include "farandole/base/process/process_state.h"

namespace farandole {
namespace {

using testing::AnyOf;

PeerWatch watch(std::initializer_list<PeerWatch::Peer> peers) {
  return PeerWatch(std::span(peers.begin(), peers.size()));
}

TEST(PeerWatch, NobodyIsLostWhileAllLive) {
  const Child one(Child::sleep_forever), two(Child::sleep_forever);
  EXPECT_FALSE(watch({}).lost());
  EXPECT_FALSE(watch({{1, one.pid()}, {2, two.pid()}}).lost());
}

TEST(PeerWatch, NamesTheSignalThatKilledAPeer) {
  for (const auto& [number, name] :
       {std::pair(SIGKILL, "killed by SIGKILL"), std::pair(SIGABRT, "killed by SIGABRT")}) {
    const Child alive(Child::sleep_forever), killed(Child::sleep_forever);
    const auto peers = watch({{0, alive.pid()}, {3, killed.pid()}});
    killed.signal(number);
    killed.await_end();
    const auto lost = peers.lost();
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->rank, 3);
    EXPECT_EQ(lost->pid, killed.pid());
    EXPECT_EQ(lost->cause, name);
  }
}

TEST(PeerWatch, NamesTheExitCode) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  const OwnedDescriptor read_end(gate[0]), write_end(gate[1]);
  const Child child([&] {
    char byte = 0;
    return ::read(read_end.get(), &byte, 1) == 1 ? 3 : 4;
  });
  const auto peers = watch({{1, child.pid()}});
  EXPECT_FALSE(peers.lost());
  ASSERT_EQ(::write(write_end.get(), "x", 1), 1);
  child.await_end();
  EXPECT_EQ(peers.lost()->cause, "ended with exit code 3");
}

TEST(PeerWatch, AStoppedPeerIsNotLost) {
  const Child child(Child::sleep_forever);
  const auto peers = watch({{1, child.pid()}});
  child.signal(SIGSTOP);
  child.await_stop();
  EXPECT_FALSE(peers.lost());
  EXPECT_EQ(read_process_state(child.pid())->state, 'T');
}

// If a process was waited for by its parent, only new kernels remember how it ended.
TEST(PeerWatch, KnowsThatAReapedPeerIsLost) {
  Child killed(Child::sleep_forever);
  const auto peers = watch({{1, killed.pid()}});
  killed.reap(SIGKILL);
  ASSERT_TRUE(peers.lost());
  EXPECT_THAT(peers.lost()->cause, AnyOf("ended", "killed by SIGKILL"));
}

TEST(PeerWatch, TheLowestLostRankComesFirst) {
  Child four(Child::sleep_forever), two(Child::sleep_forever), one(Child::sleep_forever);
  const auto peers = watch({{4, four.pid()}, {2, two.pid()}, {1, one.pid()}});
  four.reap(SIGKILL);
  EXPECT_EQ(peers.lost()->rank, 4);
  two.reap(SIGKILL);
  EXPECT_EQ(peers.lost()->rank, 2);
  ASSERT_EQ(peers.all_lost().size(), 2u);
  EXPECT_EQ(peers.all_lost()[1].rank, 4);
}

TEST(PeerWatch, LeavesOutPeersThatItCannotSee) {
  Child gone(Child::sleep_forever);
  const pid_t pid = gone.pid();
  gone.reap(SIGKILL);
  Child elsewhere(Child::sleep_forever);
  const auto peers = watch({{1, pid}, {2, elsewhere.pid(), own_pid_namespace() + 1}});
  EXPECT_TRUE(peers.descriptors().empty());
  elsewhere.reap(SIGKILL);
  EXPECT_FALSE(peers.lost());
}

TEST(PeerWatch, ADescriptorBecomesReadableAtThePeersEnd) {
  const Child child(Child::sleep_forever);
  const auto peers = watch({{1, child.pid(), own_pid_namespace()}});
  ASSERT_EQ(peers.descriptors().size(), 1u);
  pollfd polled{peers.descriptors()[0], POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 0), 0);
  child.signal(SIGKILL);
  EXPECT_EQ(::poll(&polled, 1, 20'000), 1);
}

}  // namespace
}  // namespace farandole
