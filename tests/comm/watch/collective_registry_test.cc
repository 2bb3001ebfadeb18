#include "farandole/comm/watch/collective_registry.h"

#include <gtest/gtest.h>
#include <thread>

namespace farandole {
namespace {

TEST(CollectiveRegistry, ShowsWhatIsInFlight) {
  CollectiveRegistry board;
  EXPECT_TRUE(board.read().empty());
  const auto line = board.add(3);
  ASSERT_EQ(board.read().size(), 1u);
  EXPECT_EQ(board.read()[0].entered, 0u);
  EXPECT_FALSE(board.read()[0].in_flight);
  line->enter(0, "allreduce", "bucket 0", 1024, 77);
  auto call = board.read().at(0);
  EXPECT_TRUE(call.in_flight);
  EXPECT_EQ(call.communicator, 3);
  EXPECT_EQ(call.entered, 1u);
  EXPECT_EQ(call.operation, "allreduce");
  EXPECT_EQ(call.name, "bucket 0");
  EXPECT_EQ(call.bytes, 1024u);
  EXPECT_EQ(call.since_ns, 77);
  line->leave();
  call = board.read().at(0);
  EXPECT_FALSE(call.in_flight);
  EXPECT_EQ(call.name, "bucket 0");
  line->enter(1, "broadcast", "", 0, 78);
  EXPECT_EQ(board.read().at(0).name, "");
  line->enter(2, "broadcast", std::string(200, 'x'), 0, 78);
  EXPECT_EQ(board.read().at(0).name, std::string(CallLine::longest_name, 'x'));
}

TEST(CollectiveRegistry, ALineEndsWithItsCommunicator) {
  CollectiveRegistry board;
  auto one = board.add(1);
  const auto two = board.add(2);
  one.reset();
  ASSERT_EQ(board.read().size(), 1u);
  EXPECT_EQ(board.read()[0].communicator, 2);
}

TEST(CollectiveRegistry, ReadersSeeNoMixture) {
  CollectiveRegistry board;
  const auto line = board.add(0);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::string names[] = {std::string(40, 'a'), "b"};
    for (std::uint32_t i = 0; !stop; ++i) {
      line->enter(i, i % 2 == 0 ? "even" : "odd", names[i % 2], i, i);
      line->leave();
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    const auto call = board.read().at(0);
    if (call.entered == 0) continue;
    ASSERT_EQ(call.bytes, call.entered - 1);
    ASSERT_EQ(call.since_ns, call.entered - 1);
    ASSERT_EQ(call.operation, call.bytes % 2 == 0 ? "even" : "odd");
    ASSERT_EQ(call.name, call.bytes % 2 == 0 ? std::string(40, 'a') : "b");
  }
  stop = true;
  writer.join();
}

TEST(CollectiveRegistry, ExplainsNamesAsLongAsSomebodyCan) {
  CollectiveRegistry board;
  EXPECT_FALSE(board.meaning(1, "bucket 0"));
  {
    const auto explanation =
        board.explain(1, [](std::string_view name) -> std::optional<CollectiveRegistry::Meaning> {
          if (name != "bucket 0") return std::nullopt;
          return CollectiveRegistry::Meaning{{"fc1.weight", "fc1.bias"}, {"fc1.bias"}};
        });
    EXPECT_EQ(board.meaning(1, "bucket 0")->contents.size(), 2u);
    EXPECT_FALSE(board.meaning(1, "bucket 1"));
    EXPECT_FALSE(board.meaning(2, "bucket 0"));
  }
  EXPECT_FALSE(board.meaning(1, "bucket 0"));
}

}  // namespace
}  // namespace farandole
