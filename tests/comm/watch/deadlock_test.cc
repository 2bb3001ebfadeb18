#include "farandole/comm/watch/deadlock.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lane.h"

namespace farandole {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int32_t training = 1, helper = 2, servant = -2;

CallStatus call_of(std::uint32_t communicator, int ranks, std::uint32_t entered, std::int32_t blocked,
                   const char* operation = "allreduce", const char* name = "") {
  CallStatus call;
  call.entered = call.begun = entered;
  call.key = {communicator, entered > 0 ? entered - 1 : 0};
  call.in_flight = blocked != 0 ? 1 : 0;
  call.blocked = blocked;
  call.ranks = ranks;
  call.owner = training;
  store_text(call.operation, operation);
  store_text(call.name, name);
  return call;
}

RankStatus status_of(int rank, const std::vector<CallStatus>& calls, std::int64_t steps = 12) {
  RankStatus status{
      .rank = rank, .life = Life::running, .all_calls = true, .thread = training, .steps = steps};
  for (const auto& call : calls) status.calls[status.calls_used++] = call;
  return status;
}

CallStatus at_end(int ranks) {
  return call_of(CollectiveRegistry::session_end, ranks, 1, training, "session end");
}

std::string sentence(const std::vector<RankStatus>& statuses) {
  const auto waits = find_deadlock(statuses);
  return waits.empty() ? "" : describe_deadlock(waits, statuses);
}

// As calls of another library are, which nobody compares.
TEST(Deadlock, RanksTakeDifferentCollectivesForTheSame) {
  std::vector<RankStatus> ranks = {status_of(0, {call_of(1, 2, 5, training, "allreduce")}),
                                   status_of(1, {call_of(1, 2, 5, training, "broadcast")})};
  store_text(ranks[0].place, "train.py:40 in main");
  EXPECT_EQ(
      sentence(ranks),
      "deadlock: rank 0 waits in allreduce #4 at train.py:40 in main, rank 1 waits in broadcast #4: the ranks "
      "call their collectives in different orders; let all ranks call the same collectives in the same order");
  store_text(ranks[1].calls[0].operation, "allreduce");
  EXPECT_EQ(sentence(ranks), "");
  ranks[1].calls[0].bytes = 8;
  EXPECT_NE(sentence(ranks), "");
  ranks[1].life = Life::stopped;
  EXPECT_EQ(sentence(ranks), "");
}

TEST(Deadlock, ARankHasFewerBatches) {
  std::vector<RankStatus> ranks = {status_of(0, {call_of(1, 2, 25, training, "allreduce", "bucket 0")}),
                                   status_of(1, {at_end(2), call_of(1, 2, 24, 0)})};
  EXPECT_EQ(
      sentence(ranks),
      "deadlock: rank 0 waits in allreduce #24 'bucket 0' of the gradients of step 13, rank 1 has ended its "
      "training after 12 steps and waits for the others: rank 1 has made 1 step fewer; give all "
      "ranks the same number of batches with DistributedSampler, or use Join");
  ranks[1] = status_of(1, {call_of(1, 2, 24, 0)});
  EXPECT_EQ(sentence(ranks), "") << "it may still begin the step";
  ranks[1].life = Life::leaving;
  EXPECT_THAT(sentence(ranks),
              HasSubstr("rank 1 has ended its session after 12 steps: rank 1 has made 1 step"));
  ranks[1].life = Life::stopped;
  EXPECT_EQ(sentence(ranks), "");
  ranks[1] = status_of(1, {call_of(0, 2, 4, training, "allreduce", "accuracy"), call_of(1, 2, 24, 0)});
  EXPECT_THAT(sentence(ranks),
              HasSubstr("rank 1 waits in allreduce #3 'accuracy' after 12 steps: rank 1 has made "
                        "1 step fewer; give all ranks"));
}

TEST(Deadlock, Rank0ValidatesAlone) {
  const auto alone = status_of(0, {call_of(0, 3, 4, training), call_of(1, 3, 24, 0)});
  const auto next = call_of(1, 3, 25, training, "allreduce", "bucket 0");
  EXPECT_THAT(
      sentence({alone, status_of(1, {next}), status_of(2, {next})}),
      HasSubstr(
          "rank 0 waits in allreduce #3 after 12 steps, ranks 1, 2 wait in allreduce #24 'bucket 0' of "
          "the gradients of step 13: rank 0 calls it alone; let all ranks take part in the validation"));
  const auto ended = std::vector{at_end(3), call_of(0, 3, 3, 0)};
  EXPECT_THAT(sentence({alone, status_of(1, ended), status_of(2, ended)}),
              HasSubstr("rank 0 waits in allreduce #3, ranks 1, 2 have ended their training and wait for the "
                        "others: rank 0 calls it alone; let all ranks take part"));
}

TEST(Deadlock, ARankReturnsBeforeTheOptimizerIsMade) {
  const auto setup = [](std::uint32_t entered, std::int32_t blocked) {
    return call_of(CollectiveRegistry::session_setup, 2, entered, blocked, SetupCall::operation);
  };
  EXPECT_EQ(
      sentence({status_of(0, {setup(2, training)}), status_of(1, {setup(1, 0), at_end(2)})}),
      "deadlock: rank 0 waits in the making of an optimizer or group, rank 1 has ended its training and "
      "waits for the others: all ranks must make each optimizer and group together; let no rank return "
      "before the others");
  EXPECT_EQ(sentence({status_of(0, {setup(2, training)}), status_of(1, {setup(1, 0)})}), "");
}

TEST(Deadlock, CrossedCommunicators) {
  std::vector<RankStatus> ranks = {
      status_of(0, {call_of(4, 2, 8, training, "broadcast", "a"), call_of(5, 2, 2, 0)}),
      status_of(1, {call_of(4, 2, 7, 0), call_of(5, 2, 3, training, "barrier", "b")})};
  EXPECT_THAT(sentence(ranks),
              HasSubstr("rank 0 waits in broadcast #7 'a', rank 1 waits in barrier #2 'b': the ranks "
                        "call their collectives in different orders"));
  ranks[1].calls[0].begun = 8;
  EXPECT_EQ(sentence(ranks), "") << "rank 0 goes on, because rank 1 has begun its call";
}

// The training thread may be on its way to the call that the other rank waits for.
TEST(Deadlock, EachThreadThatCouldBeginACallMustBeBlocked) {
  auto waits = call_of(1, 2, 25, training, "allreduce", "bucket 0");
  std::vector<RankStatus> ranks = {status_of(0, {waits, call_of(0, 2, 4, 0)}),
                                   status_of(1, {call_of(1, 2, 24, 0), call_of(0, 2, 5, training)})};
  EXPECT_THAT(find_deadlock(ranks), testing::SizeIs(2));
  ranks[1].calls[1].blocked = 0;
  EXPECT_THAT(find_deadlock(ranks), IsEmpty()) << "in flight, but the thread goes on";
  ranks[1].calls[1].blocked = training;
  ranks[1].calls[0].caller = helper;
  EXPECT_THAT(find_deadlock(ranks), IsEmpty()) << "a thread of its own calls there";
  ranks[1].calls[0].caller = 0;
  ranks[1].all_calls = false;
  EXPECT_THAT(find_deadlock(ranks), testing::SizeIs(2)) << "both communicators are shown";
  ranks[1].calls[0] = ranks[1].calls[1];
  ranks[1].calls_used = 1;
  EXPECT_THAT(find_deadlock(ranks), IsEmpty()) << "it may have ended the call and the communicator";
  ranks[0].calls[0].ranks = 0;
  EXPECT_THAT(find_deadlock(ranks), IsEmpty());
}

// A simulated job. Each rank has a training thread, a thread that reduces for it on communicator 1, and
// sometimes a thread of the user that calls on communicator 3.
struct Job {
  struct Step {
    enum Kind { compute, call, push, await, start, wait } kind;
    std::uint32_t communicator = 0;
  };
  struct Thread {
    std::int32_t id = 0;
    std::vector<Step> program;
    std::size_t at = 0;
    bool blocked = false;
  };
  struct Calls {
    std::uint32_t entered = 0;
    bool in_flight = false;
    std::int32_t caller = 0, blocked = 0, awaits = 0;
  };
  struct Rank {
    std::vector<Thread> threads;
    std::map<std::uint32_t, Calls> calls;
    std::uint32_t pushed = 0, reduced = 0;
    bool left = false, waits_at_end = true;
  };
  static constexpr std::uint32_t reducing = 1, of_user = 3, session_end = CollectiveRegistry::session_end;

  std::vector<Rank> ranks;
  std::map<std::uint32_t, std::vector<int>> members;

  bool complete(std::uint32_t communicator, std::uint32_t entered) {
    return std::ranges::all_of(members[communicator],
                               [&](int r) { return ranks[r].calls[communicator].entered >= entered; });
  }
  // Ends the call of a rank if all have begun it.
  bool ends(Calls& calls, std::uint32_t communicator) {
    if (!complete(communicator, calls.entered)) return false;
    calls.in_flight = false;
    calls.blocked = 0;
    return true;
  }
  static void enter(Calls& calls, std::int32_t caller, std::int32_t blocked) {
    ++calls.entered;
    calls.in_flight = true;
    calls.caller = caller == training ? 0 : caller;
    calls.blocked = blocked;
  }
  // The thread that reduces. Returns whether it got any further.
  bool reduce(Rank& rank) {
    if (rank.left) return false;
    auto& calls = rank.calls[reducing];
    if (calls.in_flight) {
      if (!ends(calls, reducing)) return false;
      if (++rank.reduced == rank.pushed) calls.awaits = calls.caller = 0;
      return true;
    }
    if (rank.reduced == rank.pushed) return false;
    enter(calls, servant, servant);
    return true;
  }
  bool advance(Rank& rank, Thread& thread) {
    if (rank.left) return false;
    if (thread.at == thread.program.size()) {
      if (thread.id != training) return false;
      // Threads of the user end before the session.
      for (const auto& other : rank.threads)
        if (other.at < other.program.size()) return false;
      auto& calls = rank.calls[session_end];
      if (!rank.waits_at_end || (calls.in_flight && ends(calls, session_end))) return rank.left = true;
      if (calls.in_flight) return false;
      enter(calls, training, training);
      return true;
    }
    const auto& step = thread.program[thread.at];
    auto& calls = rank.calls[step.communicator];
    switch (step.kind) {
      case Step::compute:
        break;
      case Step::push:
        ++rank.pushed;
        calls.caller = servant;
        break;
      case Step::await:
        if (rank.reduced < rank.pushed) {
          return std::exchange(calls.awaits, training) == 0;
        }
        break;
      case Step::start:
        enter(calls, thread.id, 0);
        break;
      case Step::wait:
      case Step::call:
        if (step.kind == Step::call && !thread.blocked) {
          enter(calls, thread.id, thread.id);
          return thread.blocked = true;
        }
        if (!ends(calls, step.communicator)) {
          const bool news = calls.blocked == 0;
          calls.blocked = thread.id;
          return news;
        }
        thread.blocked = false;
        break;
    }
    ++thread.at;
    return true;
  }
  RankStatus status(int r) const {
    auto status = status_of(r, {});
    status.life = ranks[r].left ? Life::leaving : Life::running;
    for (const auto& [communicator, calls] : ranks[r].calls) {
      auto shown = call_of(communicator, static_cast<int>(members.at(communicator).size()), calls.entered,
                           calls.blocked);
      shown.in_flight = calls.in_flight ? 1 : 0;
      shown.caller = calls.caller;
      shown.awaits = calls.awaits;
      status.calls[status.calls_used++] = shown;
    }
    return status;
  }
};

class RandomJob : public Job {
 public:
  explicit RandomJob(std::mt19937& random) : random_(random) {
    const int size = 2 + pick(4);
    std::vector<int> all, group;
    for (int r = 0; r < size; ++r) {
      all.push_back(r);
      if (r < 2 || pick(2) == 0) group.push_back(r);
    }
    std::ranges::shuffle(group, random_);
    members = {{0, all}, {reducing, all}, {2, group}, {of_user, all}, {session_end, all}};
    const auto program = training_program();
    std::vector<Step> user(pick(3) == 0 ? pick(4) : 0, Step{Step::call, of_user});
    ranks.resize(size);
    const bool wrong = pick(3) != 0;
    for (int r = 0; r < size; ++r) {
      auto& rank = ranks[r];
      rank.threads = {{training, for_rank(program, r)}, {helper, user}};
      if (wrong && pick(2) == 0) spoil(rank);
      for (const auto& [communicator, who] : members)
        if (std::ranges::count(who, r) > 0) rank.calls[communicator];
    }
    mistaken = wrong;
  }
  // One random thread does one thing, if it can.
  void step() {
    auto& rank = ranks[pick(ranks.size())];
    const auto which = pick(rank.threads.size() + 1);
    if (which == rank.threads.size())
      reduce(rank);
    else
      advance(rank, rank.threads[which]);
  }
  // Until nothing can go on.
  void run_out() {
    for (bool news = true; news;) {
      news = false;
      for (auto& rank : ranks) {
        news |= reduce(rank);
        for (auto& thread : rank.threads) news |= advance(rank, thread);
      }
    }
  }
  std::size_t pick(std::size_t below) { return random_() % below; }
  bool mistaken = false;

 private:
  std::vector<Step> training_program() {
    std::vector<Step> program;
    for (std::size_t i = 0, length = 2 + pick(10); i < length; ++i) switch (pick(6)) {
        case 0:
          program.push_back({Step::compute});
          break;
        case 1:
          program.push_back({Step::call, 0});
          break;
        case 2:
          program.push_back({Step::call, 2});
          break;
        case 3:
          program.insert(program.end(), {{Step::start, 0}, {Step::compute}, {Step::wait, 0}});
          break;
        default:
          for (std::size_t b = 0, buckets = 1 + pick(3); b < buckets; ++b)
            program.insert(program.end(),
                           {{Step::push, reducing}, {pick(4) == 0 ? Step::call : Step::compute, 0}});
          program.push_back({Step::await, reducing});
      }
    return program;
  }
  std::vector<Step> for_rank(std::vector<Step> program, int r) {
    const auto& group = members[2];
    if (std::ranges::count(group, r) == 0)
      std::erase_if(program, [](const Step& step) { return step.communicator == 2; });
    return program;
  }
  void spoil(Rank& rank) {
    auto& program = rank.threads.front().program;
    rank.waits_at_end = pick(3) != 0;
    if (program.empty()) return program.push_back({Step::call, 0});
    const auto at = pick(program.size());
    const auto lone = [&](const Step& step) { return step.kind == Step::call || step.kind == Step::compute; };
    switch (pick(4)) {
      case 0:  // Stops early, between two whole steps.
        while (program.size() > at && !program.empty()) program.pop_back();
        while (!program.empty() && !lone(program.back()) && program.back().kind != Step::wait &&
               program.back().kind != Step::await)
          program.pop_back();
        break;
      case 1:
        if (lone(program[at])) program.erase(program.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 2:
        program.push_back({Step::call, 0});
        break;
      default:
        if (at + 1 < program.size() && lone(program[at]) && lone(program[at + 1]))
          std::swap(program[at], program[at + 1]);
    }
  }
  std::mt19937& random_;
};

// A deadlock is found if and only if ranks are stuck, and what was found is never wrong, although each status
// is of another moment.
TEST(Deadlock, OfRandomJobs) {
  std::mt19937 random(seed(20261127));
  const int jobs = rounds(800, 20'000);
  int stuck_jobs = 0, early = 0, sound_jobs = 0;
  for (int round = 0; round < jobs; ++round) {
    RandomJob job(random);
    const auto size = static_cast<int>(job.ranks.size());
    std::vector<RankStatus> published;
    for (int r = 0; r < size; ++r) published.push_back(job.status(r));
    std::vector<HopelessWait> found;
    for (std::size_t i = 0, steps = job.pick(400); i < steps && found.empty(); ++i) {
      job.step();
      const auto r = static_cast<int>(job.pick(job.ranks.size()));
      published[static_cast<std::size_t>(r)] = job.status(r);
      found = find_deadlock(published);
    }
    early += found.empty() ? 0 : 1;
    job.run_out();
    for (const auto& [rank, call] : found) {
      const auto& now = job.ranks[static_cast<std::size_t>(rank)].calls[call.key.communicator];
      ASSERT_TRUE(now.in_flight && now.entered == call.entered) << "round " << round << ", rank " << rank;
    }
    bool stuck = false;
    for (int r = 0; r < size; ++r) {
      published[static_cast<std::size_t>(r)] = job.status(r);
      stuck = stuck || !job.ranks[static_cast<std::size_t>(r)].left;
    }
    ASSERT_EQ(find_deadlock(published).empty(), !stuck) << "round " << round;
    ASSERT_TRUE(job.mistaken || !stuck) << "the simulation is wrong";
    if (stuck) {
      ASSERT_THAT(sentence(published), HasSubstr("deadlock: "));
    }
    (stuck ? stuck_jobs : sound_jobs) += 1;
  }
  EXPECT_GT(stuck_jobs, jobs / 10);
  EXPECT_GT(sound_jobs, jobs / 10);
  EXPECT_GT(early, 0);
}

}  // namespace
}  // namespace farandole
