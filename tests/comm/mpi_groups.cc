#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <thread>

#include "comm/mpi_world.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/comm/job/transport.h"

namespace farandole {
namespace {

int sum_of_ranks(Communicator& comm) {
  int sum = world->layout().rank;
  comm.allreduce("ranks", &sum, 1, DType::int32, ReduceOp::sum);
  return sum;
}

TEST(Groups, AnySubsetInAnyOrder) {
  std::mt19937 random(seed(7));  // equal on all ranks
  for (int round = 0; round < 30; ++round) {
    std::vector<int> ranks;
    for (int r = 0; r < world->layout().size; ++r)
      if (random() % 2 == 0) ranks.push_back(r);
    std::shuffle(ranks.begin(), ranks.end(), random);
    const auto own = std::find(ranks.begin(), ranks.end(), world->layout().rank);
    if (own == ranks.end()) continue;
    const auto comm = world->new_communicator(Waiting::yielding, ranks);
    EXPECT_EQ(comm->rank, own - ranks.begin());
    EXPECT_EQ(comm->size, static_cast<int>(ranks.size()));
    int sum = 0;
    for (const int r : ranks) sum += r;
    EXPECT_EQ(sum_of_ranks(*comm), sum);
  }
}

TEST(Groups, TwoThreadsMakeTheirsAtOnce) {
  const int size = world->layout().size, rank = world->layout().rank;
  std::vector<int> all, pair = {rank / 2 * 2, std::min(rank / 2 * 2 + 1, size - 1)};
  if (pair[0] == pair[1]) pair.pop_back();
  for (int r = size - 1; r >= 0; --r) all.push_back(r);
  int sum = 0, sum_of_pair = 0;
  std::thread other([&] { sum_of_pair = sum_of_ranks(*world->new_communicator(Waiting::yielding, pair)); });
  sum = sum_of_ranks(*world->new_communicator(Waiting::yielding, all));
  other.join();
  EXPECT_EQ(sum, size * (size - 1) / 2);
  EXPECT_EQ(sum_of_pair, pair.size() == 2 ? pair[0] + pair[1] : pair[0]);
}

TEST(Groups, ListsThatAreNone) {
  const int rank = world->layout().rank, size = world->layout().size;
  const auto make = [](std::vector<int> ranks) { world->new_communicator(Waiting::spin, ranks); };
  EXPECT_THROW(make({}), UserError);
  EXPECT_THROW(make({rank, rank}), UserError);
  EXPECT_THROW(make({rank, size}), UserError);
  EXPECT_THROW(make({rank, -1}), UserError);
  EXPECT_THROW(make({(rank + 1) % (size + 1)}), UserError);
}

TEST(Transport, SaysWhichValuesItKnows) {
  EXPECT_EQ(parse_transport("auto"), Transport::automatic);
  EXPECT_EQ(parse_transport("hierarchical"), Transport::hierarchical);
  EXPECT_EQ(parse_transport("mpi"), Transport::mpi);
  EXPECT_THROW(parse_transport("MPI"), UserError);
  EXPECT_THROW(parse_transport("tcp"), UserError);
  EXPECT_THROW(parse_transport(""), UserError);
}

// Every rank is a node of its own.
std::unique_ptr<Communicator> make_of_nodes(TransportOptions options) {
  std::vector<int> nodes(static_cast<std::size_t>(world->layout().size));
  std::iota(nodes.begin(), nodes.end(), 0);
  options.machine_ranks = world->layout().size;
  options.mpi = world->mpi();
  ControlCommunicator group(world->control(), all_ranks(world->layout().size));
  return make_communicator(group, nodes, Waiting::spin, options);
}

// Where the ranks measure, they all know the same result, and it says what it compared.
TEST(Transport, AutomaticSaysWhatItMeasured) {
  if (world->layout().size < 2) GTEST_SKIP() << "one rank has no peers";
  LinkChoice choice;
  const auto comm = make_of_nodes(
      {.transport = Transport::automatic, .chose_links = [&](const LinkChoice& links) { choice = links; }});
  EXPECT_NE(choice.reason.find("allreduce: "), std::string::npos) << choice.reason;
  std::string of_root = choice.reason;
  of_root.resize(1000);
  comm->broadcast("reason", of_root.data(), of_root.size(), 0);
  EXPECT_EQ(of_root.c_str(), choice.reason);
  EXPECT_EQ(comm->nonblocking_allreduce() == nullptr, choice.collectives_of_mpi);
}

// Some ranks have chosen links for a group before, and others have not.
TEST(Transport, RanksWithAndWithoutAChoiceAgree) {
  if (world->layout().size < 2) GTEST_SKIP() << "one rank has no peers";
  const LinkChoice earlier{.kind = LinkKind::mpi, .window = 2, .reason = "an earlier choice"};
  for (const bool all : {false, true}) {
    LinkChoice choice;
    const bool knows = all || world->layout().rank % 2 == 1;
    const auto comm = make_of_nodes({.transport = Transport::tcp,
                                     .known_links = knows ? std::optional(earlier) : std::nullopt,
                                     .chose_links = [&](const LinkChoice& links) { choice = links; }});
    EXPECT_EQ(choice.kind, all ? LinkKind::mpi : LinkKind::tcp);
    const int size = world->layout().size;
    EXPECT_EQ(sum_of_ranks(*comm), size * (size - 1) / 2);
  }
}

}  // namespace
}  // namespace farandole
