#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/mpi_world.h"
#include "error_message.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/comm/queue/point_to_point.h"

namespace farandole {
namespace {

using testing::HasSubstr;

class Messages : public testing::Test {
 protected:
  const int rank = world->layout().rank, size = world->layout().size;
  Tickets tickets_;
  const std::unique_ptr<PointToPoint> messages_ = world->new_messages(tickets_);
};

struct Planned {
  int from, to, tag;
  std::size_t bytes;
  unsigned number;

  std::vector<std::byte> content() const {
    std::vector<std::byte> content(bytes);
    for (std::size_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i * 13 + number * 7);
    return content;
  }
};

// Messages with the same ranks and tag arrive in the order in which they are sent. All others may be begun
// and awaited in any order.
TEST_F(Messages, ArriveInAnyOrderOfCalls) {
  std::mt19937 random(seed(41));  // equal on all ranks
  std::mt19937 own(seed(42) + static_cast<unsigned>(rank));
  for (int round = 0; round < rounds(15, 500); ++round) {
    std::vector<Planned> plan;
    const auto any_rank = [&] { return static_cast<int>(random() % static_cast<unsigned>(size)); };
    for (unsigned number = 0; number < 40; ++number) {
      const int tag = random() % 2 == 0 ? static_cast<int>(random() % 3) : static_cast<int>(random() >> 1);
      plan.push_back({any_rank(), any_rank(), tag, random() % (std::size_t{1} << random() % 20), number});
    }
    struct Call {
      bool sends;
      std::size_t message;
      std::vector<std::byte> data;
      int sender = -2;
      Ticket ticket = 0;
    };
    std::vector<Call> calls;
    for (std::size_t m = 0; m < plan.size(); ++m) {
      if (plan[m].from == rank) calls.push_back({true, m, plan[m].content()});
      if (plan[m].to == rank) calls.push_back({false, m, std::vector<std::byte>(plan[m].bytes)});
    }
    std::shuffle(calls.begin(), calls.end(), own);
    std::map<std::tuple<bool, int, int, int>, std::vector<std::size_t>> same;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const auto& message = plan[calls[c].message];
      same[{calls[c].sends, message.from, message.to, message.tag}].push_back(c);
    }
    for (const auto& [key, places] : same)
      for (std::size_t i = 0; i < places.size(); ++i)
        for (std::size_t k = i + 1; k < places.size(); ++k)
          if (calls[places[k]].message < calls[places[i]].message)
            std::swap(calls[places[k]], calls[places[i]]);
    for (auto& call : calls) {
      const auto& message = plan[call.message];
      call.ticket = call.sends
                        ? messages_->start_send(call.data.data(), message.bytes, message.to, message.tag)
                        : messages_->start_receive(call.data.data(), message.bytes, message.from, message.tag,
                                                   &call.sender);
    }
    std::vector<Call*> awaited;
    for (auto& call : calls) awaited.push_back(&call);
    std::shuffle(awaited.begin(), awaited.end(), own);
    std::map<Ticket, Call*> told;
    for (auto* const call : awaited) {
      if (own() % 4 == 0) {
        tickets_.notify(call->ticket);
        told[call->ticket] = call;
      } else if (own() % 4 == 0) {
        while (!tickets_.wait(call->ticket, std::chrono::microseconds(50))) {
        }
      } else {
        ASSERT_TRUE(tickets_.wait(call->ticket));
      }
    }
    while (!told.empty()) {
      const auto done = tickets_.next_done();
      EXPECT_EQ(done->error, nullptr);
      ASSERT_EQ(told.erase(done->ticket), 1u);
    }
    for (const auto& call : calls) {
      ASSERT_EQ(call.data, plan[call.message].content()) << "message " << call.message;
      ASSERT_EQ(call.sender, call.sends ? -2 : plan[call.message].from);
    }
  }
}

TEST_F(Messages, ThreadsWaitForThemAtTheSameTime) {
  const int peer = (rank + 1) % size, source = (rank + size - 1) % size;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 20; ++round) {
        const std::size_t count = round % 5 == 0 ? 200'000 : 3;
        std::vector<int> out(count, 100 * rank + thread), in(count);
        const auto receive = messages_->start_receive(in.data(), count * sizeof(int), source, thread);
        const auto send = messages_->start_send(out.data(), count * sizeof(int), peer, thread);
        EXPECT_TRUE(tickets_.wait(thread % 2 == 0 ? receive : send));
        EXPECT_TRUE(tickets_.wait(thread % 2 == 0 ? send : receive));
        EXPECT_EQ(in, std::vector<int>(count, 100 * source + thread));
      }
    });
}

TEST_F(Messages, SynchronousOnesAndAnySource) {
  if (rank != 0) {
    messages_->send(&rank, sizeof rank, 0, 1 << 20);
    int answer = 0;
    EXPECT_EQ(messages_->receive(&answer, sizeof answer, 0, 0), 0);
    EXPECT_EQ(answer, rank * rank);
    return;
  }
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (int i = 1; i < size; ++i) {
    int value = 0, sender = 0;
    if (i % 2 == 0)
      sender = messages_->receive(&value, sizeof value, PointToPoint::any_source, 1 << 20);
    else
      tickets_.wait(
          messages_->start_receive(&value, sizeof value, PointToPoint::any_source, 1 << 20, &sender));
    EXPECT_EQ(value, sender);
    EXPECT_FALSE(seen[static_cast<std::size_t>(sender)]);
    seen[static_cast<std::size_t>(sender)] = true;
    const int answer = value * value;
    messages_->send(&answer, sizeof answer, sender, 0);
  }
}

TEST_F(Messages, OfAnotherSizeAreRefused) {
  std::vector<std::byte> data(300'000);
  std::byte in[10]{};
  for (const std::size_t bytes : {300'000, 20, 5}) {
    const auto send = messages_->start_send(data.data(), bytes, rank, 3);
    const auto text = message_of<UserError>([&] { messages_->receive(in, sizeof in, rank, 3); });
    EXPECT_THAT(text, HasSubstr("the message of 10 bytes from rank " + std::to_string(rank) + " with tag 3"));
    EXPECT_THAT(text, HasSubstr("has " + std::to_string(bytes)));
    EXPECT_TRUE(tickets_.wait(send));
    const auto again = messages_->start_send(data.data(), bytes, rank, 3);
    EXPECT_THROW(tickets_.wait(messages_->start_receive(in, sizeof in, PointToPoint::any_source, 3)),
                 UserError);
    EXPECT_TRUE(tickets_.wait(again));
  }
  // What comes later is received.
  const auto send = messages_->start_send(data.data(), 10, rank, 3);
  EXPECT_EQ(messages_->receive(in, sizeof in, rank, 3), rank);
  EXPECT_TRUE(tickets_.wait(send));
}

// A rank that sends long messages faster than they are received keeps them.
TEST_F(Messages, LongOnesWaitAtTheirSender) {
  const int peer = (rank + 1) % size, source = (rank + size - 1) % size;
  const std::vector<std::byte> out(1'000'003, static_cast<std::byte>(rank));
  std::vector<Ticket> sends;
  for (int i = 0; i < 8; ++i) sends.push_back(messages_->start_send(out.data(), out.size(), peer, 5));
  messages_->send(&rank, sizeof rank, peer, 6);
  int sender = -1;
  EXPECT_EQ(messages_->receive(&sender, sizeof sender, PointToPoint::any_source, 6), source);
  for (const auto send : sends) EXPECT_FALSE(tickets_.ended(send));
  std::vector<std::byte> in(out.size());
  messages_->send(&rank, sizeof rank, peer, 7);
  messages_->receive(&sender, sizeof sender, source, 7);  // which has looked at its sends
  for (auto left = sends.size(); left > 0; --left) {
    std::ranges::fill(in, std::byte{99});
    EXPECT_EQ(messages_->receive(in.data(), in.size(), source, 5), source);
    EXPECT_EQ(in, std::vector<std::byte>(in.size(), static_cast<std::byte>(source)));
  }
  for (const auto send : sends) tickets_.wait(send);
}

TEST_F(Messages, WrongArgumentsAreRefused) {
  std::byte byte{};
  EXPECT_THAT(message_of<UserError>([&] { messages_->start_send(&byte, 1, size, 0); }),
              HasSubstr("only the ranks"));
  EXPECT_THROW(messages_->start_receive(&byte, 1, -2, 0), UserError);
  EXPECT_THROW(messages_->send(&byte, 1, PointToPoint::any_source, 0), UserError);
  EXPECT_THAT(message_of<UserError>([&] { messages_->start_send(&byte, 1, rank, -1); }), HasSubstr("tag -1"));
}

TEST_F(Messages, BelongToTheirGroup) {
  std::mt19937 random(seed(43));  // equal on all ranks
  for (int round = 0; round < 10; ++round) {
    std::vector<int> ranks;
    for (int r = 0; r < size; ++r)
      if (random() % 2 == 0) ranks.push_back(r);
    std::shuffle(ranks.begin(), ranks.end(), random);
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end()) continue;
    const auto group = world->new_messages(tickets_, ranks);
    const int own = static_cast<int>(place - ranks.begin()), count = static_cast<int>(ranks.size());
    int in = -1, of_all = -1, sender = -1;
    const int out = 100 + own;
    const auto all_receive = messages_->start_receive(&of_all, sizeof of_all, rank, 7);
    const auto receive = group->start_receive(&in, sizeof in, PointToPoint::any_source, 7, &sender);
    group->send(&out, sizeof out, (own + 1) % count, 7);
    EXPECT_TRUE(tickets_.wait(receive));
    EXPECT_EQ(sender, (own + count - 1) % count);
    EXPECT_EQ(in, 100 + sender);
    EXPECT_FALSE(tickets_.ended(all_receive));
    messages_->send(&round, sizeof round, rank, 7);
    EXPECT_TRUE(tickets_.wait(all_receive));
    EXPECT_EQ(of_all, round);
  }
}

TEST_F(Messages, TheEndOfTheJobEndsThem) {
  std::byte byte{};
  auto messages = world->new_messages(tickets_);
  const auto receive = messages->start_receive(&byte, 1, rank, 0);
  const std::vector<std::byte> data(1'000'000);
  const auto send = messages->start_send(data.data(), data.size(), rank, 1);
  EXPECT_FALSE(tickets_.ended(receive));
  EXPECT_FALSE(tickets_.ended(send));
  std::thread waits([&] {
    EXPECT_THAT(message_of<Error>([&] { tickets_.wait(receive); }),
                HasSubstr("the message of 1 bytes from rank " + std::to_string(rank) +
                          " with tag 0 did not end before"));
  });
  messages.reset();
  waits.join();
  EXPECT_THAT(message_of<Error>([&] { tickets_.wait(send); }), HasSubstr("bytes to rank"));
}

}  // namespace
}  // namespace farandole
