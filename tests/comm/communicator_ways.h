// The kinds of communicators on which every test of collectives runs.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "comm/mpi_world.h"

#include "farandole/comm/job/transport.h"
#include "farandole/comm/rank_layout.h"

namespace farandole {

// A synthetic assignment of the job's ranks to nodes, so that one machine can test many layouts. Null
// means the real one.
using Nodes = int (*)(int rank);

struct Way {
  std::string name;
  Waiting waiting = Waiting::spin;
  Nodes node_of = nullptr;
  TransportOptions options = {};

  // Collective: every rank of the job must call this in the same order.
  std::unique_ptr<Communicator> make() const {
    if (node_of == nullptr) return world->new_communicator(waiting);
    std::vector<int> nodes;
    for (int r = 0; r < world->layout().size; ++r) nodes.push_back(node_of(r));
    ControlCommunicator group(world->control(), all_ranks(world->layout().size));
    auto with_choice = options;
    with_choice.mpi = world->mpi();
    if (options.transport != Transport::hierarchical)
      return make_communicator(group, nodes, waiting, with_choice);
    // Only the first communicator measures links, because it takes time.
    static std::optional<LinkChoice> measured;
    with_choice.known_links = measured;
    with_choice.chose_links = [](const LinkChoice& choice) { measured = choice; };
    return make_communicator(group, nodes, waiting, with_choice);
  }
};

inline void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

inline std::vector<Way> ways() {
  const auto pairs = [](int rank) { return rank / 2; };
  const auto cyclic = [](int rank) { return rank % 2; };
  const auto last_alone = [](int rank) { return rank == 3 ? 0 : 1; };
  const auto alone = [](int rank) { return rank; };
  std::vector<Way> all = {{"Spin", Waiting::spin}, {"Yielding", Waiting::yielding}};
  // Links are measured only by Transport::hierarchical, because it takes time.
  const auto add = [&](const std::string& name, Nodes nodes, int leader_groups, std::size_t latency_bytes,
                       Transport transport = Transport::tcp, Waiting waiting = Waiting::spin) {
    const std::size_t table_bytes = all.size() % 3 == 0 ? 1 << 20 : 10'000;
    std::optional<LinkChoice> known;
    if (transport == Transport::tcp)
      known =
          LinkChoice{.kind = LinkKind::tcp, .window = all.size() % 2 == 0 ? std::size_t{1} : std::size_t{3}};
    all.push_back({name,
                   waiting,
                   nodes,
                   {transport, leader_groups, 8, {latency_bytes, {}, Wire::exact, table_bytes}, known}});
  };
  add("Pairs", pairs, 2, 4096);
  add("PairsMessages", pairs, 2, 4096, Transport::mpi_messages);
  add("PairsOwnChoice", pairs, 0, 64, Transport::hierarchical);
  add("PairsOneLeaderGroup", pairs, 1, 4096);
  add("PairsYielding", pairs, 0, 4096, Transport::tcp, Waiting::yielding);
  add("Cyclic", cyclic, 0, 64);
  add("CyclicOneLeaderGroup", cyclic, 1, 64, Transport::mpi_messages, Waiting::yielding);
  add("OneAlone", last_alone, 0, 4096);
  add("OneAloneTwoLeaderGroups", last_alone, 2, 64);
  add("AllAlone", alone, 0, 4096);
  add("AllAloneMessages", alone, 0, 64, Transport::mpi_messages);
  all.push_back({"MpiAlone", Waiting::spin, pairs, {Transport::mpi}});
  return all;
}

}  // namespace farandole
