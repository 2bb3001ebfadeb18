#include "farandole/comm/control/control_plane.h"

#include <arpa/inet.h>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/comm/control/control_communicator.h"
#include "farandole/comm/control/message_channel.h"
#include "farandole/comm/recording/clock_rounds.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

std::string unique_text() {
  static int count = 0;
  return fmt::format("{} {} {}", ::getpid(), ++count, now_ns());
}

ControlPlane::Start start_of(int rank, int size, const MeetingPlace& meeting, int ranks_of_node) {
  ControlPlane::Start start{rank, size, ranks_of_node < size, meeting};
  start.facts.node = static_cast<std::uint64_t>(rank / ranks_of_node);
  return start;
}

// Each rank is a thread. Throws what a rank throws.
void run_ranks(int size, int ranks_of_node, const std::function<void(ControlPlane&)>& work) {
  const auto meeting = meet_on_node(unique_text());
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        try {
          ControlPlane control(start_of(rank, size, meeting, ranks_of_node));
          control.join();
          work(control);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
  }
  for (const auto& error : errors)
    if (error != nullptr) std::rethrow_exception(error);
}

std::vector<int> all_of(const ControlPlane& control) {
  std::vector<int> ranks(static_cast<std::size_t>(control.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(ControlPlane, TellsEachRankAboutAll) {
  for (const int ranks_of_node : {1, 2, 5})
    run_ranks(5, ranks_of_node, [&](ControlPlane& control) {
      std::set<std::uint64_t> nodes;
      for (const auto& facts : control.ranks()) {
        EXPECT_EQ(facts.host, control.ranks().front().host);
        nodes.insert(facts.node);
      }
      EXPECT_EQ(nodes.size(), static_cast<std::size_t>((5 + ranks_of_node - 1) / ranks_of_node));
    });
}

TEST(ControlPlane, CarriesMessagesInOrderBetweenAllRanks) {
  run_ranks(6, 2, [](ControlPlane& control) {
    MessageChannel channel(control, all_of(control));
    constexpr int count = 200;
    for (int i = 0; i < count; ++i)
      for (int to = 0; to < control.size(); ++to) channel.send(to, byte_view(i));
    std::vector<int> next(static_cast<std::size_t>(control.size()));
    for (int i = 0; i < count * control.size(); ++i) {
      const auto message = channel.wait_any(30s);
      ASSERT_TRUE(message.has_value());
      EXPECT_EQ(value_of<int>(message->bytes), next[static_cast<std::size_t>(message->from)]++);
    }
    EXPECT_FALSE(channel.receive_any().has_value());
  });
}

TEST(ControlPlane, CarriesLargeMessagesBothWaysAtOnce) {
  run_ranks(2, 1, [](ControlPlane& control) {
    MessageChannel channel(control, all_of(control));
    std::vector<std::byte> large(20'000'000, static_cast<std::byte>(control.rank() + 7));
    channel.send(1 - control.rank(), large);
    channel.send(1 - control.rank(), {});
    EXPECT_EQ(channel.receive(1 - control.rank()),
              std::vector<std::byte>(large.size(), static_cast<std::byte>(8 - control.rank())));
    EXPECT_TRUE(channel.receive(1 - control.rank()).empty());
  });
}

TEST(ControlPlane, KeepsListsOfRanksAndChannelsApart) {
  run_ranks(4, 2, [](ControlPlane& control) {
    MessageChannel first(control, all_of(control)), second(control, all_of(control));
    const auto more = first.another();
    if (control.rank() == 3) {
      more->send(0, byte_view(3));
      second.send(0, byte_view(2));
      first.send(0, byte_view(1));
    }
    if (control.rank() != 0) return;
    EXPECT_EQ(value_of<int>(first.receive(3)), 1);
    EXPECT_EQ(value_of<int>(second.receive(3)), 2);
    EXPECT_EQ(value_of<int>(more->receive(3)), 3);
  });
}

TEST(ControlPlane, HasCollectivesForTheSetup) {
  for (const int ranks_of_node : {1, 2, 3, 7})
    run_ranks(7, ranks_of_node, [](ControlPlane& control) {
      std::vector<int> list = {6, 1, 3, 0, 5};  // another order than that of the ranks
      if (std::ranges::find(list, control.rank()) == list.end()) return;
      ControlCommunicator some(control, list);
      std::int64_t values[] = {some.rank, 10 * some.rank};
      some.allreduce("sum", values, 2, DType::int64, ReduceOp::sum);
      EXPECT_EQ(values[0], 10);
      EXPECT_EQ(values[1], 100);
      int told = some.rank == 3 ? 77 : 0;
      some.broadcast("number", &told, sizeof told, 3);
      EXPECT_EQ(told, 77);
      const std::vector<std::size_t> sizes = {0, 1, 2, 3, 4};
      std::vector<char> own(sizes[static_cast<std::size_t>(some.rank)], static_cast<char>('a' + some.rank)),
          all(10);
      some.all_gather("parts", own.data(), all.data(), sizes);
      EXPECT_EQ(std::string(all.begin(), all.end()), "bccdddeeee");
      std::vector<int> out(5), in(5);
      for (int to = 0; to < 5; ++to) out[static_cast<std::size_t>(to)] = 10 * some.rank + to;
      const std::vector<std::size_t> each(5, sizeof(int)), ones(5, 1);
      some.all_to_all("pieces", out.data(), each, in.data(), each);
      for (int from = 0; from < 5; ++from)
        EXPECT_EQ(in[static_cast<std::size_t>(from)], 10 * from + some.rank);
      int part = 0;
      some.reduce_scatter("sums", out.data(), &part, ones, DType::int32, ReduceOp::sum);
      EXPECT_EQ(part, 100 + 5 * some.rank);
      some.barrier();
    });
}

TEST(ControlPlane, SaysThatARankHasEnded) {
  run_ranks(3, 1, [](ControlPlane& control) {
    MessageChannel channel(control, all_of(control));
    if (control.rank() == 2) return channel.send(0, byte_view(1));
    if (control.rank() == 1) return;
    EXPECT_EQ(value_of<int>(channel.receive(2)), 1);  // what it has sent before arrives
    try {
      channel.receive(2);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::peer_lost);
    }
  });
}

TEST(ControlPlane, AsksForTheTime) {
  run_ranks(3, 1, [](ControlPlane& control) {
    MessageChannel channel(control, all_of(control));
    if (control.rank() != 0) {
      for (int i = 0; i < 20; ++i) {
        const auto trip = control.ask_time(0, 10s);
        ASSERT_TRUE(trip.has_value());
        EXPECT_LE(trip->send_ns, trip->reference_ns);  // of one clock
        EXPECT_LE(trip->reference_ns, trip->receive_ns);
      }
      channel.send(0, {});
      return;
    }
    for (int rank = 1; rank < 3; ++rank) channel.receive(rank);
  });
}

TEST(ControlPlane, KnowsOneRankOfEachClockThatMeasuresIt) {
  const auto meeting = meet_on_node(unique_text());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 6; ++rank)
    threads.emplace_back([&, rank] {
      auto start = start_of(rank, 6, meeting, 6);
      start.facts.clock = static_cast<std::uint32_t>(7 + rank / 2);
      ControlPlane control(start);
      control.join();
      EXPECT_EQ(measures_clock(control), rank == 2 || rank == 4);
    });
}

TEST(ControlPlane, MakesConnectionsForOthers) {
  run_ranks(4, 2, [](ControlPlane& control) {
    for (int other = 0; other < control.size(); ++other) {
      if (other == control.rank()) continue;
      const auto socket = control.connect(other, 5);
      const int own = control.rank();
      ASSERT_EQ(::write(socket.get(), &own, sizeof own), static_cast<ssize_t>(sizeof own));
      int got = -1;
      while (::read(socket.get(), &got, sizeof got) < 0) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(got, other);
    }
    ControlCommunicator(control, all_of(control)).barrier();
  });
}

// Rank 0 of an earlier start has left its file.
TEST(ControlPlane, MeetsThroughAFile) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "meeting";
  for (int start = 0; start < 2; ++start) {
    std::jthread late([&] {
      std::this_thread::sleep_for(100ms);
      ControlPlane control(start_of(0, 2, meet_in_file(file), 1));
      control.join();
      ControlCommunicator(control, {0, 1}).barrier();
    });
    ControlPlane control(start_of(1, 2, meet_in_file(file), 1));
    control.join();
    ControlCommunicator(control, {0, 1}).barrier();
  }
}

TEST(ControlPlane, DoesNotWaitForRanksThatDoNotCome) {
  const auto meeting = meet_on_node(unique_text());
  ControlPlane first(start_of(0, 3, meeting, 3));
  std::jthread other([&] {
    ControlPlane second(start_of(1, 3, meeting, 3));
    second.join(20s);
    EXPECT_FALSE(second.ranks()[0].host.empty());
    EXPECT_TRUE(second.ranks()[2].host.empty());
  });
  first.join(500ms);
  EXPECT_FALSE(first.ranks()[1].host.empty());
  EXPECT_TRUE(first.ranks()[2].host.empty());
  ControlPlane nobody(start_of(1, 2, meet_on_node(unique_text()), 2));
  EXPECT_THROW(nobody.join(50ms), Error);
}

// Whoever does not know the token is disconnected, also with a greeting of the right form.
TEST(ControlPlane, DropsStrangers) {
  run_ranks(2, 1, [](ControlPlane& control) {
    ControlCommunicator both(control, {0, 1});
    std::mt19937 random(static_cast<unsigned>(control.rank()));
    const auto port = [](const Address& address) {
      return address.address.ss_family == AF_INET6
                 ? reinterpret_cast<const sockaddr_in6&>(address.address).sin6_port
                 : reinterpret_cast<const sockaddr_in&>(address.address).sin_port;
    };
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = port(control.ranks()[0].addresses.at(0));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 20; ++i) {
      const OwnedDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
      std::vector<char> garbage(static_cast<std::size_t>(1 + i * 3));
      for (auto& byte : garbage) byte = static_cast<char>(random());
      ::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
      char answer = 0;
      if (garbage.size() >= 24) {
        EXPECT_LE(::recv(socket.get(), &answer, 1, 0), 0);
      }
    }
    both.barrier();
  });
}

}  // namespace
}  // namespace farandole
