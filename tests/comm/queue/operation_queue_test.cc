#include "farandole/comm/queue/operation_queue.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "error_message.h"
#include "lane.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;
using namespace ::testing;

// The queue's thread does not begin before `go`, so the other threads must do its work.
struct HeldThread {
  std::function<void()> function() {
    return [this] { go.wait(); };
  }
  std::latch go{1};
};

std::unique_ptr<Communicator> solo() {
  return std::make_unique<SoloCommunicator>();
}

TEST(OperationQueue, RunsInTheOrderOfTheCalls) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < rounds(20, 500); ++round) {
    Tickets tickets(std::chrono::microseconds(round % 2 == 0 ? 0 : 20));
    std::vector<int> ran, expected(100);
    std::iota(expected.begin(), expected.end(), 0);
    std::set<Ticket> told;
    std::size_t notified = 0;
    {
      OperationQueue queue(solo(), tickets);
      std::vector<Ticket> open;
      for (const int number : expected) {
        const auto operation = [&ran, number](Communicator&) { ran.push_back(number); };
        if (random() % 4 == 0) {
          queue.run(operation);
          ASSERT_EQ(ran.back(), number);
        } else if (const auto ticket = queue.start(operation); random() % 4 == 0) {
          tickets.notify(ticket);
          ++notified;
        } else {
          open.push_back(ticket);
        }
        if (random() % 3 == 0 && !open.empty()) {
          const auto one = open.begin() + static_cast<std::ptrdiff_t>(random() % open.size());
          if (random() % 2 == 0) {
            ASSERT_TRUE(tickets.wait(*one));
          } else {
            while (!tickets.wait(*one, 10us)) {
            }
          }
          open.erase(one);
        }
        if (random() % 3 == 0)
          while (const auto done = tickets.next_done(0s)) told.insert(done->ticket);
      }
    }
    EXPECT_EQ(ran, expected);
    while (const auto done = tickets.next_done(0s)) told.insert(done->ticket);
    EXPECT_EQ(told.size(), notified);
  }
}

TEST(OperationQueue, ThreadsShareIt) {
  Tickets tickets;
  constexpr std::size_t threads = 4;
  std::vector<std::pair<std::size_t, int>> ran;
  {
    OperationQueue queue(solo(), tickets);
    std::vector<std::jthread> callers;
    for (std::size_t caller = 0; caller < threads; ++caller)
      callers.emplace_back([&, caller] {
        std::mt19937 random(seed(2) + static_cast<unsigned>(caller));
        for (int number = 0; number < 200; ++number) {
          const OperationQueue::Operation operation = [&, caller, number](Communicator&) {
            ran.emplace_back(caller, number);
          };
          if (random() % 3 == 0)
            queue.run(operation);
          else if (const auto ticket = queue.start(operation); random() % 2 == 0)
            tickets.wait(ticket);
        }
      });
  }
  ASSERT_EQ(ran.size(), threads * 200);
  std::vector<int> next(threads);
  for (const auto& [caller, number] : ran) EXPECT_EQ(next[caller]++, number);
}

TEST(OperationQueue, AWaitingThreadRunsWhatNobodyHasBegun) {
  Tickets tickets;
  HeldThread held;
  OperationQueue queue(solo(), tickets, held.function());
  std::vector<std::thread::id> ran_on;
  const auto operation = [&](Communicator&) { ran_on.push_back(std::this_thread::get_id()); };
  const auto first = queue.start(operation), second = queue.start(operation), third = queue.start(operation);
  EXPECT_FALSE(tickets.ended(first));
  EXPECT_FALSE(tickets.wait(second, 1ms));  // It could not keep the limit if it ran operations.
  EXPECT_TRUE(ran_on.empty());
  EXPECT_TRUE(tickets.wait(second));
  EXPECT_EQ(ran_on, std::vector(2, std::this_thread::get_id()));
  EXPECT_TRUE(tickets.ended(first));
  EXPECT_FALSE(tickets.ended(third));
  queue.run(operation);
  EXPECT_EQ(ran_on, std::vector(4, std::this_thread::get_id()));
  EXPECT_TRUE(tickets.wait(third) && tickets.wait(first));
  held.go.count_down();
}

TEST(OperationQueue, QueuesDoNotWaitForEachOther) {
  Tickets tickets;
  std::latch other(1);
  OperationQueue one(solo(), tickets), two(solo(), tickets);
  const auto first = one.start([&](Communicator&) { other.wait(); });
  const auto second = two.start([&](Communicator&) { other.count_down(); });
  EXPECT_TRUE(tickets.wait(first));
  EXPECT_TRUE(tickets.wait(second));
}

TEST(OperationQueue, AfterAnErrorAllOperationsFail) {
  Tickets tickets;
  OperationQueue queue(solo(), tickets);
  std::atomic<int> ran = 0;
  const auto good = queue.start([&](Communicator&) { ++ran; });
  const auto bad = queue.start([](Communicator&) { throw Error("rank 3 is gone", ExitCode::peer_lost); });
  const auto later = queue.start([&](Communicator&) { ++ran; });
  EXPECT_TRUE(tickets.wait(good));
  for (const auto ticket : {later, bad}) {
    try {
      tickets.wait(ticket);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 3 is gone");
      EXPECT_EQ(error.exit_code(), ExitCode::peer_lost);
    }
  }
  EXPECT_EQ(message_of<Error>([&] { queue.run([&](Communicator&) { ++ran; }); }), "rank 3 is gone");
  const auto told = queue.start([&](Communicator&) { ++ran; });
  tickets.notify(told);
  const auto done = tickets.next_done();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->ticket, told);
  EXPECT_NE(done->error, nullptr);
  EXPECT_EQ(ran, 1);
}

TEST(OperationQueue, AnErrorOfASynchronousOperationFailsLaterOnes) {
  Tickets tickets;
  OperationQueue queue(solo(), tickets);
  EXPECT_THROW(queue.run([](Communicator&) { throw UserError("wrong"); }), UserError);
  EXPECT_THROW(tickets.wait(queue.start([](Communicator&) { FAIL(); })), UserError);
}

TEST(OperationQueue, ItsEndWaitsForItsOperations) {
  for (const bool has_begun : {false, true}) {
    Tickets tickets;
    std::latch begun(1), go(1);
    std::vector<Ticket> open;
    std::atomic<int> ran = 0;
    std::jthread helper;
    {
      HeldThread held;
      OperationQueue queue(solo(), tickets, has_begun ? std::function<void()>() : held.function());
      if (has_begun) {
        open.push_back(queue.start([&](Communicator&) {
          begun.count_down();
          go.wait();
        }));
        begun.wait();
      }
      for (int i = 0; i < 3; ++i) open.push_back(queue.start([&](Communicator&) { ++ran; }));
      helper = std::jthread([&] { go.count_down(); });
      if (!has_begun) held.go.count_down();
    }
    EXPECT_EQ(ran, 3);
    for (const auto ticket : open) EXPECT_TRUE(tickets.wait(ticket));
  }
}

TEST(OperationQueue, ItsThreadHasAName) {
  Tickets tickets;
  std::latch started(1);
  OperationQueue queue(solo(), tickets, [&] { started.count_down(); });
  tickets.wait(queue.start([](Communicator&) {}));
  started.wait();
}

class NotedCommunicator : public SoloCommunicator {
 public:
  explicit NotedCommunicator(std::vector<std::pair<bool, bool>>& notes) : notes_(notes) {}
  void note_servant(bool has_work, bool is_awaited) override {
    if (notes_.empty() || notes_.back() != std::pair(has_work, is_awaited))
      notes_.emplace_back(has_work, is_awaited);
  }

 private:
  std::vector<std::pair<bool, bool>>& notes_;
};

TEST(OperationQueue, TellsTheWatchdogWhoWaitsForWhom) {
  std::vector<std::pair<bool, bool>> notes;
  Tickets tickets;
  std::latch begun(1), go(1);
  OperationQueue queue(std::make_unique<NotedCommunicator>(notes), tickets);
  EXPECT_THAT(notes, ElementsAre(Pair(false, false)));  // before another thread begins
  queue.run([](Communicator&) {});
  EXPECT_EQ(notes.size(), 1u);
  const auto ticket = queue.start([&](Communicator&) {
    begun.count_down();
    go.wait();
  });
  begun.wait();
  std::jthread later([&] {
    for (bool is_awaited = false; !is_awaited; std::this_thread::yield()) {
      const std::lock_guard lock(tickets.mutex());
      is_awaited = notes.back().second;
    }
    go.count_down();
  });
  EXPECT_TRUE(tickets.wait(ticket));
  const std::lock_guard lock(tickets.mutex());
  EXPECT_THAT(notes,
              ElementsAre(Pair(false, false), Pair(true, false), Pair(true, true), Pair(false, false)));
}

TEST(Tickets, AreWaitedForOnce) {
  Tickets tickets;
  OperationQueue queue(solo(), tickets);
  const auto ticket = queue.start([](Communicator&) {}), told = queue.start([](Communicator&) {});
  EXPECT_GT(ticket, 0);
  EXPECT_GT(told, ticket);
  EXPECT_TRUE(tickets.wait(ticket));
  tickets.notify(told);
  for (const auto unknown : {ticket, told, Ticket{0}, Ticket{99}}) {
    EXPECT_THAT(message_of<UserError>([&] { tickets.wait(unknown); }), HasSubstr("can be waited for once"));
    EXPECT_THROW(tickets.ended(unknown), UserError);
    EXPECT_THROW(tickets.notify(unknown), UserError);
  }
}

TEST(Tickets, OneThreadWaitsForATicket) {
  Tickets tickets;
  std::latch begun(1), go(1);
  OperationQueue queue(solo(), tickets);
  const auto ticket = queue.start([&](Communicator&) {
    begun.count_down();
    go.wait();
  });
  begun.wait();
  // Returns what it is told when another thread waits.
  const auto refusal = [&](Tickets::Limit limit) -> std::string {
    try {
      while (!tickets.wait(ticket, limit)) {
      }
      return {};
    } catch (const UserError& error) {
      return error.what();
    }
  };
  std::jthread waiting([&] {
    while (!refusal(std::nullopt).empty()) {
    }
  });
  const auto message = refusal(0s);
  EXPECT_THAT(message, HasSubstr("two threads"));
  EXPECT_THROW(tickets.notify(ticket), UserError);
  EXPECT_FALSE(tickets.ended(ticket));
  go.count_down();
}

TEST(Tickets, EndsAreToldUntilTheyAreClosed) {
  Tickets tickets;
  OperationQueue queue(solo(), tickets);
  EXPECT_FALSE(tickets.next_done(1ms).has_value());
  EXPECT_FALSE(tickets.is_closed());
  std::latch go(1);
  const auto first = queue.start([](Communicator&) {});
  EXPECT_TRUE(tickets.wait(queue.start([](Communicator&) {})));
  tickets.notify(first);  // after its end
  const auto second = queue.start([&](Communicator&) { go.wait(); });
  tickets.notify(second);
  EXPECT_EQ(tickets.next_done()->ticket, first);
  std::jthread waiting([&] {
    EXPECT_EQ(tickets.next_done()->ticket, second);
    EXPECT_FALSE(tickets.next_done().has_value());
    EXPECT_TRUE(tickets.is_closed());
  });
  go.count_down();
  const auto last = queue.start([](Communicator&) {});
  EXPECT_TRUE(tickets.wait(last));
  tickets.close();
  waiting.join();
  EXPECT_FALSE(tickets.next_done().has_value());
}

}  // namespace
}  // namespace farandole
