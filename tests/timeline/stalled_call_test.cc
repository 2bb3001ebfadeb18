#include "farandole/timeline/stalled_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using State = RankProgress::State;

CallProgress waiting(std::uint32_t communicator, std::uint32_t sequence, std::int64_t since_ns = 100) {
  return {communicator, sequence + 1, true, since_ns, "allreduce", "bucket 0"};
}
CallProgress past(std::uint32_t communicator, std::uint32_t sequence) {
  return {communicator, sequence + 1, false, 100, "allreduce", "bucket 0"};
}
// The rank is its position in the list.
std::vector<RankProgress> ranks(std::vector<RankProgress> list) {
  for (std::size_t r = 0; r < list.size(); ++r) list[r].rank = static_cast<int>(r);
  return list;
}
RankProgress rank(std::vector<CallProgress> calls, State state = State::runs) {
  return {0, state, std::move(calls)};
}

TEST(StalledCall, IsTheOneInWhichRanksWait) {
  const auto stalled =
      find_stalled_call(ranks({rank({waiting(1, 17, 60)}), rank({past(1, 16)}), rank({waiting(1, 17, 40)})}));
  ASSERT_TRUE(stalled);
  EXPECT_EQ(stalled->key, (CallKey{1, 17}));
  EXPECT_EQ(stalled->text, "allreduce #17 'bucket 0'");
  EXPECT_THAT(stalled->waiting, ElementsAre(0, 2));
  EXPECT_THAT(stalled->missing, ElementsAre(1));
  EXPECT_EQ(stalled->since_ns, 40);
  EXPECT_FALSE(find_stalled_call(ranks({rank({past(1, 1)}), rank({})}))) << "no rank waits";
  EXPECT_EQ(describe_collective("broadcast", 3, ""), "broadcast #3");
}

// Each case: rank 1, while rank 0 waits in collective 17 of communicator 1, and whether rank 1 is missing.
TEST(StalledCall, LacksWhoDelaysIt) {
  struct Case {
    const char* what;
    RankProgress rank;
    bool missing;
  };
  RankProgress unknown_group = rank({past(2, 3)});
  unknown_group.all_communicators = false;
  for (const auto& one :
       {Case{"behind", rank({past(1, 16)}), true},
        Case{"has begun none", rank({{1, 0, false, 0, "", ""}}), true},
        Case{"waits in an earlier one", rank({waiting(1, 16)}), true},
        Case{"has completed it", rank({past(1, 17)}), false}, Case{"ahead", rank({past(1, 18)}), false},
        Case{"outside of the group", rank({past(2, 3)}), false},
        Case{"outside, or before its first one", unknown_group, false},
        Case{"gone", rank({}, State::gone), true},
        Case{"gone while it waited", rank({waiting(1, 17)}, State::gone), true},
        Case{"stopped before it", rank({past(1, 16)}, State::stopped), true},
        Case{"stopped within it", rank({waiting(1, 17)}, State::stopped), true},
        Case{"stopped after it", rank({past(1, 17)}, State::stopped), true},
        Case{"stopped before its last status told of the communicator", rank({past(2, 3)}, State::stopped),
             true},
        Case{"stopped ahead", rank({past(1, 18)}, State::stopped), false}}) {
    // The waiting rank is also in another collective, which began later.
    const auto stalled = find_stalled_call(ranks({rank({past(2, 3), waiting(1, 17, 40)}), one.rank}));
    ASSERT_TRUE(stalled);
    EXPECT_EQ(stalled->missing, one.missing ? std::vector{1} : std::vector<int>()) << one.what;
  }
  const auto first = find_stalled_call(ranks({rank({waiting(1, 0)}), unknown_group}));
  EXPECT_THAT(first->missing, ElementsAre(1)) << "it may be before its first one";
}

TEST(StalledCall, NamesTheRootCauseBeforeItsVictims) {
  const auto stalled =
      find_stalled_call(ranks({rank({waiting(0, 9), past(1, 16)}), rank({past(0, 8), past(1, 16)}),
                               rank({past(0, 8), past(1, 16)}, State::stopped),
                               rank({past(0, 9), waiting(1, 17)}), rank({past(0, 9), waiting(1, 17)})}));
  EXPECT_THAT(stalled->waiting, ElementsAre(3, 4));
  EXPECT_THAT(stalled->missing, ElementsAre(2, 1, 0));
  EXPECT_EQ(stalled->victims, 1u);
}

// Rank 0 waits in both.
TEST(StalledCall, PrefersOneThatLacksARankThenMoreRanksThenTheFirst) {
  auto list = ranks({rank({waiting(1, 5, 90), waiting(2, 5, 80)}), rank({waiting(1, 5, 90), past(2, 4)})});
  EXPECT_EQ(find_stalled_call(list)->key.communicator, 2u) << "all are in the other one";
  list[1].calls[1] = waiting(2, 5, 80);
  EXPECT_EQ(find_stalled_call(list)->key.communicator, 2u) << "it began first";
  EXPECT_THAT(find_stalled_call(list)->missing, IsEmpty());
  list.push_back(rank({waiting(1, 5, 90)}));
  EXPECT_EQ(find_stalled_call(list)->key.communicator, 1u) << "more ranks wait in it";
}

}  // namespace
}  // namespace farandole
