#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

#include "comm/mpi_world.h"

namespace farandole {
namespace {

TEST(MessageChannel, DeliversInOrderAndOfAnySize) {
  const auto channel = world->new_channel();
  const int to = (channel->rank() + 1) % channel->size();
  const int from = (channel->rank() + channel->size() - 1) % channel->size();
  for (const std::size_t bytes : {0u, 1u, 1000u, 3'000'000u}) {
    const std::vector<std::byte> message(bytes, static_cast<std::byte>(channel->rank()));
    // A single rank sends to itself, so a separate thread sends large messages.
    std::thread sender([&] { channel->send(to, message); });
    const auto received = channel->receive(from);
    sender.join();
    EXPECT_EQ(received, std::vector<std::byte>(bytes, static_cast<std::byte>(from)));
  }
}

TEST(RankLayout, IsConsistent) {
  const auto& layout = world->layout();
  EXPECT_EQ(layout.hosts.size(), static_cast<std::size_t>(layout.size));
  EXPECT_LT(layout.rank, layout.size);
  EXPECT_LT(layout.local_rank, layout.local_size);
  EXPECT_EQ(layout.hosts[static_cast<std::size_t>(layout.rank)], layout.node);
  ASSERT_EQ(layout.nodes.size(), static_cast<std::size_t>(layout.size));
  EXPECT_EQ(layout.nodes[0], 0);
  EXPECT_EQ(std::count(layout.nodes.begin(), layout.nodes.end(),
                       layout.nodes[static_cast<std::size_t>(layout.rank)]),
            layout.local_size);
}

}  // namespace
}  // namespace farandole
