#include "farandole/comm/watch/collective_registry.h"

#include <gtest/gtest.h>
#include <thread>

namespace farandole {
namespace {

TEST(CollectiveRegistry, ShowsWhatIsInFlight) {
  CollectiveRegistry registry;
  EXPECT_TRUE(registry.read().empty());
  const auto entry = registry.add(3);
  ASSERT_EQ(registry.read().size(), 1u);
  EXPECT_EQ(registry.read()[0].entered, 0u);
  EXPECT_FALSE(registry.read()[0].in_flight);
  entry->enter(0, "allreduce", "bucket 0", 1024, 77);
  auto call = registry.read().at(0);
  EXPECT_TRUE(call.in_flight);
  EXPECT_EQ(call.communicator, 3);
  EXPECT_EQ(call.entered, 1u);
  EXPECT_EQ(call.operation, "allreduce");
  EXPECT_EQ(call.name, "bucket 0");
  EXPECT_EQ(call.bytes, 1024u);
  EXPECT_EQ(call.since_ns, 77);
  entry->leave();
  call = registry.read().at(0);
  EXPECT_FALSE(call.in_flight);
  EXPECT_EQ(call.name, "bucket 0");
  entry->enter(1, "broadcast", "", 0, 78);
  EXPECT_EQ(registry.read().at(0).name, "");
  entry->enter(2, "broadcast", std::string(200, 'x'), 0, 78);
  EXPECT_EQ(registry.read().at(0).name, std::string(CollectiveEntry::longest_name, 'x'));
}

// How far a rank came in a communicator matters to the others after it has destroyed it.
TEST(CollectiveRegistry, KeepsTheLastStateOfACommunicator) {
  CollectiveRegistry registry;
  auto one = registry.add(1, 4);
  const auto two = registry.add(2);
  one->enter(6, "allreduce", "bucket 0", 8, 77);
  one.reset();
  ASSERT_EQ(registry.read().size(), 2u);
  EXPECT_FALSE(registry.read()[0].open);
  EXPECT_FALSE(registry.read()[0].in_flight);
  EXPECT_EQ(registry.read()[0].entered, 7u);
  EXPECT_TRUE(registry.read()[1].open);
  one = registry.add(1, 4);
  ASSERT_EQ(registry.read().size(), 2u);
  EXPECT_EQ(registry.read()[1].entered, 0u) << "of the new communicator";
  EXPECT_EQ(registry.read()[1].ranks, 4);
  auto next = registry.add(1, 4);  // before the last one is destroyed
  next->enter(0, "broadcast", "", 8, 77);
  one.reset();
  ASSERT_EQ(registry.read().size(), 2u);
  EXPECT_EQ(registry.read()[1].entered, 1u);
  EXPECT_TRUE(registry.complete());
  for (std::uint16_t number = 3; number < 500; ++number) registry.add(number);
  EXPECT_FALSE(registry.complete());
  EXPECT_LT(registry.read().size(), 300u);
}

TEST(CollectiveRegistry, ShowsWhoCallsAndWhoIsBlocked) {
  CollectiveRegistry registry;
  const auto entry = registry.add(1);
  EXPECT_EQ(registry.read()[0].owner, own_thread());
  std::thread([&] {
    EXPECT_NE(own_thread(), entry->owner());
    entry->enter(0, "allreduce", "", 0, 0, own_thread());
    entry->set_blocked(own_thread());
    EXPECT_EQ(registry.read()[0].caller, own_thread());
    EXPECT_EQ(registry.read()[0].blocked, own_thread());
  }).join();
}

TEST(CollectiveRegistry, ReadersSeeNoMixture) {
  CollectiveRegistry registry;
  const auto entry = registry.add(0);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::string names[] = {std::string(40, 'a'), "b"};
    for (std::uint32_t i = 0; !stop; ++i) {
      entry->enter(i, i % 2 == 0 ? "even" : "odd", names[i % 2], i, i);
      entry->leave();
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    const auto call = registry.read().at(0);
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
  CollectiveRegistry registry;
  EXPECT_FALSE(registry.meaning(1, "bucket 0"));
  {
    const auto explanation =
        registry.explain(1, [](std::string_view name) -> std::optional<CollectiveRegistry::Meaning> {
          if (name != "bucket 0") return std::nullopt;
          return CollectiveRegistry::Meaning{{"fc1.weight", "fc1.bias"}, {"fc1.bias"}};
        });
    EXPECT_EQ(registry.meaning(1, "bucket 0")->contents.size(), 2u);
    EXPECT_FALSE(registry.meaning(1, "bucket 1"));
    EXPECT_FALSE(registry.meaning(2, "bucket 0"));
  }
  EXPECT_FALSE(registry.meaning(1, "bucket 0"));
}

}  // namespace
}  // namespace farandole
