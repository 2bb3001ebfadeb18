// All ranks of a leader group exchange the pieces of a stream through links in memory, in one thread
// and in a random order. A link copies bytes as late as it may, so memory that is changed too early
// gives a wrong result.
#include "farandole/comm/net/stream.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "lane.h"

#include "farandole/comm/net/leader_group.h"

namespace farandole {
namespace {

using Random = std::mt19937_64;

// What has left one rank and has not reached the other.
struct Pipe {
  std::deque<std::byte> bytes;
  std::size_t capacity = 0;
};

class MemoryLink final : public Link {
 public:
  MemoryLink(Pipe& out, Pipe& in, Random& random) : out_(out), in_(in), random_(random) {}

  void send(const std::byte* data, std::size_t bytes) override { sends_.push_back({{data, bytes}, {}}); }
  void receive(std::byte* data, std::size_t bytes) override { receives_.push_back({data, bytes}); }
  bool progress() override {
    bool moved = complete_some();
    for (std::size_t left = 1 + random_() % 5000; left > 0 && !sends_.empty();) {
      auto& [memory, sent] = sends_.front();
      const auto rest = memory.subspan(sent.size());
      const auto count = std::min({left, rest.size(), out_.capacity - out_.bytes.size()});
      if (count == 0) break;
      out_.bytes.insert(out_.bytes.end(), rest.begin(), rest.begin() + static_cast<long>(count));
      sent.insert(sent.end(), rest.begin(), rest.begin() + static_cast<long>(count));
      left -= count;
      moved = true;
      if (sent.size() < memory.size()) continue;
      on_the_way_.push_back(std::move(sends_.front()));
      sends_.pop_front();
    }
    for (std::size_t left = 1 + random_() % 5000; left > 0 && !receives_.empty();) {
      auto& message = receives_.front();
      const auto count = std::min({left, message.size(), in_.bytes.size()});
      if (count == 0) break;
      std::copy_n(in_.bytes.begin(), count, message.begin());
      in_.bytes.erase(in_.bytes.begin(), in_.bytes.begin() + static_cast<long>(count));
      message = message.subspan(count);
      left -= count;
      moved = true;
      if (!message.empty()) continue;
      receives_.pop_front();
      ++received_;
    }
    return moved;
  }
  void abandon() override {
    sends_.clear();
    on_the_way_.clear();
    receives_.clear();
  }

 private:
  struct Sending {
    std::span<const std::byte> memory;
    std::vector<std::byte> sent;
  };

  // A message may be complete long after its bytes have reached the peer. Until then, its memory
  // must not change.
  bool complete_some() {
    if (on_the_way_.empty()) return false;
    if (random_() % 3 != 0) return true;
    const auto& [memory, sent] = on_the_way_.front();
    EXPECT_TRUE(std::ranges::equal(memory, sent)) << "memory was changed before its message was complete";
    on_the_way_.pop_front();
    ++sent_;
    return true;
  }

  Pipe &out_, &in_;
  Random& random_;
  std::deque<Sending> sends_, on_the_way_;
  std::deque<std::span<std::byte>> receives_;
};

// Counts what a collective does with each element.
class CountingSlice final : public Slice {
 public:
  explicit CountingSlice(std::vector<std::int64_t> numbers)
      : values(std::move(numbers)), gathered(values.size()), scaled(values.size()), finished(values.size()) {
    data = reinterpret_cast<std::byte*>(values.data());
    dtype = DType::int64;
  }
  void gather(std::size_t first, std::size_t count) override {
    for (std::size_t i = first; i < first + count; ++i) ++gathered[i];
  }
  void scale(std::size_t first, std::size_t count) override {
    for (std::size_t i = first; i < first + count; ++i) ++scaled[i];
  }
  void finish(std::size_t first, std::size_t count) override {
    for (std::size_t i = first; i < first + count; ++i) ++finished[i];
  }

  std::vector<std::int64_t> values;
  std::vector<int> gathered, scaled, finished;
};

class Nodes {
 public:
  Nodes(int size, Random& random, std::size_t least_capacity = 1) : random_(random) {
    const auto ranks = static_cast<std::size_t>(size);
    for (std::size_t pair = 0; pair < ranks * ranks; ++pair)
      pipes_.push_back({.bytes = {}, .capacity = least_capacity + random() % 9000});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::unique_ptr<Link>> links(ranks);
      for (std::size_t peer = 0; peer < ranks; ++peer)
        if (peer != rank)
          links[peer] =
              std::make_unique<MemoryLink>(pipes_[rank * ranks + peer], pipes_[peer * ranks + rank], random);
      groups_.push_back(std::make_unique<LeaderGroup>(static_cast<int>(rank), size, std::move(links)));
    }
  }

  // Random values of `count` elements on each rank.
  std::vector<std::vector<std::int64_t>> values(std::size_t count) {
    std::vector<std::vector<std::int64_t>> all(groups_.size(), std::vector<std::int64_t>(count));
    for (auto& rank : all)
      for (auto& value : rank) value = static_cast<std::int64_t>(random_() >> 8);
    return all;
  }

  template <class AnySlice>
  bool run(std::vector<AnySlice>& slices, const std::function<Stream(int rank)>& stream) {
    for (std::size_t rank = 0; rank < groups_.size(); ++rank)
      groups_[rank]->start(7, slices[rank], stream(static_cast<int>(rank)));
    return advance_all() && agree();
  }

  // Adds the values of all ranks by recursive doubling.
  bool run_small(std::vector<std::vector<float>>& values) {
    for (std::size_t rank = 0; rank < groups_.size(); ++rank)
      groups_[rank]->start_small(7, false, reinterpret_cast<std::byte*>(values[rank].data()),
                                 values[rank].size(), DType::float32, ReduceOp::sum);
    return advance_all() && agree();
  }

  LeaderGroup& operator[](std::size_t rank) { return *groups_[rank]; }

  // Returns false if no rank can go on before all have ended.
  bool advance_all() {
    std::vector<std::size_t> order(groups_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto busy = [](const auto& group) { return group->busy(); };
    while (std::ranges::any_of(groups_, busy)) {
      std::ranges::shuffle(order, random_);
      bool moved = false;
      for (const auto rank : order) {
        const bool was_busy = groups_[rank]->busy();
        moved = (was_busy && groups_[rank]->advance()) || moved;
        moved = moved || (was_busy && !groups_[rank]->busy());
      }
      if (!moved) return false;
    }
    return true;
  }

 private:
  bool agree() const {
    return std::ranges::all_of(pipes_, [](const Pipe& pipe) { return pipe.bytes.empty(); }) &&
           std::ranges::none_of(groups_, [](const auto& group) { return group->mismatch(); });
  }

  Random& random_;
  std::deque<Pipe> pipes_;
  std::vector<std::unique_ptr<LeaderGroup>> groups_;
};

TEST(Streams, AllreduceSumsOnAllRanks) {
  Random random(seed(5));
  for (int round = 0; round < rounds(150, 1500) && !HasFailure(); ++round) {
    const int size = 2 + static_cast<int>(random() % 5);
    const std::size_t count = random() % 3000;
    const Cut cut{1 + random() % (random() % 2 == 0 ? 50 : 2000), 1 + random() % 4};
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << ": " << size << " ranks, " << count << " elements in pieces of "
                 << cut.elements << ", window " << cut.window);
    Nodes nodes(size, random);
    const auto before = nodes.values(count);
    std::vector<CountingSlice> slices(before.begin(), before.end());
    ASSERT_TRUE(nodes.run(slices, [&](int rank) { return allreduce_stream(rank, size, count, cut); }));
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t sum = 0;
      int scaled = 0;
      for (const auto& rank : before) sum += rank[i];
      for (const auto& slice : slices) {
        ASSERT_EQ(slice.values[i], sum) << i;
        ASSERT_EQ(slice.gathered[i], 1) << i;
        ASSERT_EQ(slice.finished[i], 1) << i;
        scaled += slice.scaled[i];
      }
      ASSERT_EQ(scaled, size == 2 ? 2 : 1) << i;
    }
  }
}

// Floats of very different sizes, so that another order of additions gives other bits.
std::vector<std::vector<float>> uneven_values(std::size_t ranks, std::size_t count, Random& random) {
  std::vector<std::vector<float>> all(ranks, std::vector<float>(count));
  for (auto& rank : all)
    for (auto& value : rank)
      value =
          std::ldexp(static_cast<float>(random() % 1'000'003) - 500'000.0F, static_cast<int>(random() % 24));
  return all;
}

// A job that continues may cut its gradients into other messages.
TEST(Streams, AllreduceAddsInTheSameOrderForAnySizeAndPlace) {
  Random random(seed(8));
  for (int round = 0; round < rounds(60, 600) && !HasFailure(); ++round) {
    const int size = 2 + static_cast<int>(random() % 6);
    const auto ranks = static_cast<std::size_t>(size);
    const std::size_t count = 1 + random() % 2000;
    SCOPED_TRACE(::testing::Message()
                 << "round " << round << ": " << size << " ranks, " << count << " elements");
    const auto before = uneven_values(ranks, count, random);
    Nodes nodes(size, random);
    auto whole = before, small = before, halves = before;
    const auto reduce_part = [&](std::vector<std::vector<float>>& values, std::size_t first, std::size_t end,
                                 Wire wire) {
      std::vector<Slice> slices(ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        slices[rank].data = reinterpret_cast<std::byte*>(values[rank].data() + first);
        slices[rank].wire = wire;
      }
      const Cut cut{1 + random() % 700, 1 + random() % 4};
      ASSERT_TRUE(
          nodes.run(slices, [&](int rank) { return allreduce_stream(rank, size, end - first, cut); }));
    };
    const std::size_t middle = random() % count;
    reduce_part(whole, 0, count, Wire::exact);
    reduce_part(halves, 0, middle, Wire::exact);
    reduce_part(halves, middle, count, Wire::exact);
    ASSERT_TRUE(nodes.run_small(small));
    auto narrow = before, narrow_halves = before;
    reduce_part(narrow, 0, count, Wire::bfloat16);
    reduce_part(narrow_halves, 0, middle, Wire::bfloat16);
    reduce_part(narrow_halves, middle, count, Wire::bfloat16);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(whole[rank], whole[0]) << rank;
      ASSERT_EQ(whole[rank], halves[rank]) << rank;
      ASSERT_EQ(whole[rank], small[rank]) << rank;
      ASSERT_EQ(narrow[rank], narrow[0]) << rank;
      ASSERT_EQ(narrow[rank], narrow_halves[rank]) << rank;
    }
  }
}

// Small and large calls in any mixture, and ranks that only say that the calls differ.
TEST(Streams, EveryRankLearnsThatTheCallsDiffer) {
  Random random(seed(9));
  for (int round = 0; round < rounds(150, 4000) && !HasFailure(); ++round) {
    const std::size_t ranks = 2 + random() % 8, count = 1 + random() % 500;
    const Cut cut{1 + random() % 100, 1 + random() % 3};
    Nodes nodes(static_cast<int>(ranks), random, 64);  // a socket has room for a header
    const auto values = nodes.values(1000);
    std::vector<CountingSlice> slices(values.begin(), values.end());
    std::vector<int> kinds(ranks);
    do {
      const auto other = 1 + random() % 4;
      for (auto& kind : kinds) kind = static_cast<int>(random() % 2 == 0 ? 0 : random() % (other + 1));
    } while (std::ranges::all_of(kinds, [&](int kind) { return kind == kinds[0] && kind != 4; }));
    SCOPED_TRACE(::testing::Message() << "round " << round << ": " << testing::PrintToString(kinds));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto kind = static_cast<std::size_t>(kinds[rank]);
      auto& slice = slices[rank];
      if (kind < 2)  // large
        nodes[rank].start(
            kind, slice,
            allreduce_stream(static_cast<int>(rank), static_cast<int>(ranks), count + 100 * kind, cut));
      else
        nodes[rank].start_small(kind, kind == 4, slice.data, kind == 4 ? 0 : count, slice.dtype, slice.op);
    }
    ASSERT_TRUE(nodes.advance_all());
    for (std::size_t rank = 0; rank < ranks; ++rank) ASSERT_TRUE(nodes[rank].mismatch()) << "rank " << rank;
  }
}

// Several exchanges in a row, in which each rank has some messages for each other one, perhaps empty ones.
TEST(LeaderGroups, MessagesArriveInTheirPlaces) {
  Random random(seed(10));
  for (int round = 0; round < rounds(40, 1000) && !HasFailure(); ++round) {
    const std::size_t ranks = 2 + random() % 6;
    Nodes nodes(static_cast<int>(ranks), random);
    for (int exchange = 0; exchange < 3; ++exchange) {
      std::deque<std::vector<std::byte>> sent, received;  // messages
      std::vector<std::vector<LeaderGroup::Messages>> sends(ranks), receives(ranks);
      for (auto* const of_all : {&sends, &receives})
        for (auto& of_rank : *of_all) of_rank.resize(ranks);
      for (std::size_t from = 0; from < ranks; ++from)
        for (std::size_t to = 0; to < ranks; ++to)
          for (auto messages = from == to ? 0 : random() % 4; messages > 0; --messages) {
            const std::size_t most = random() % 60 == 0 ? 300'000 : 500;
            auto& data = sent.emplace_back(random() % 3 == 0 ? 0 : random() % most);
            std::ranges::generate(data, [&] { return static_cast<std::byte>(random()); });
            sends[from][to].emplace_back(data);
            receives[to][from].emplace_back(received.emplace_back(data.size()));
          }
      for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t distance = 1; distance < ranks; ++distance) {
          const auto to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
          nodes[rank].start_messages(static_cast<int>(to), sends[rank][to], static_cast<int>(from),
                                     receives[rank][from]);
        }
      ASSERT_TRUE(nodes.advance_all());
      ASSERT_EQ(received, sent) << "round " << round << ", " << ranks << " ranks";
    }
  }
}

TEST(Streams, PartsCoverEachElementOnceAndBeginAtCacheLines) {
  Random random(seed(7));
  for (int round = 0; round < rounds(2000, 20'000); ++round) {
    const std::size_t count = random() % 5000, parts = 1 + random() % 20;
    std::size_t next = 0;
    for (std::size_t part = 0; part < parts; ++part) {
      const auto [first, length] = part_of(count, part, parts);
      ASSERT_EQ(first, next) << count << " in " << parts;
      ASSERT_TRUE(first % 64 == 0 || first == count) << count << " in " << parts;
      next = first + length;
    }
    ASSERT_EQ(next, count);
  }
}

}  // namespace
}  // namespace farandole
