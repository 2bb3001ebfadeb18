#include "farandole/comm/net/stream.h"

#include <algorithm>

namespace farandole {
namespace {

using Pieces = std::vector<ElementRange>;
using Kind = Lane::Kind;
using Messages = std::vector<Lane::Message>;

Pieces cut_up(const Ranges& ranges, const Cut& cut) {
  Pieces pieces;
  for (const auto& range : ranges)
    for (std::size_t done = 0; done < range.count; done += cut.elements)
      pieces.push_back({range.first + done, std::min(cut.elements, range.count - done)});
  return pieces;
}

Messages messages(const Pieces& pieces, Kind kind) {
  Messages all;
  for (const auto& piece : pieces) all.push_back({piece, kind});
  return all;
}

// What a rank sends to another one in an allreduce: its values of the other's part, and the results of its
// own part. A result follows as soon as it can be there if the ranks are equally fast.
Messages operands_and_results(const Pieces& others_part, const Pieces& own_part, std::size_t window) {
  Messages all;
  for (std::size_t next = 0; next < std::max(others_part.size(), own_part.size() + window); ++next) {
    if (next >= window && next - window < own_part.size())
      all.push_back({own_part[next - window], Kind::result});
    if (next < others_part.size()) all.push_back({others_part[next], Kind::operand});
  }
  return all;
}

// Lanes to all other ranks. Each rank begins with the rank after it, so that they do not all send to the same
// one at first.
template <class MakeLane>
Stream stream_of(int rank, std::size_t ranks, const Cut& cut, MakeLane make_lane) {
  Stream stream;
  stream.cut = cut;
  for (std::size_t distance = 1; distance < ranks; ++distance) {
    const std::size_t peer = (static_cast<std::size_t>(rank) + distance) % ranks;
    Lane lane = make_lane(peer);
    lane.peer = static_cast<int>(peer);
    stream.lanes.push_back(std::move(lane));
  }
  return stream;
}

}  // namespace

ElementRange part_of(std::size_t count, std::size_t part, std::size_t parts) {
  constexpr std::size_t aligned = 64;
  const auto first_of = [&](std::size_t which) {
    return std::min(count, (count * which / parts + aligned - 1) / aligned * aligned);
  };
  return {first_of(part), first_of(part + 1) - first_of(part)};
}

// Two ranks exchange all of their values at once.
Stream allreduce_stream(int rank, int size, std::size_t count, const Cut& cut) {
  const auto ranks = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  const bool mutual = size == 2;
  std::vector<Pieces> parts;
  for (std::size_t part = 0; part < ranks; ++part)
    parts.push_back(cut_up({mutual ? ElementRange{0, count} : part_of(count, part, ranks)}, cut));
  auto stream = stream_of(rank, ranks, cut, [&](std::size_t peer) -> Lane {
    const Pieces results = mutual ? Pieces() : parts[own], theirs = mutual ? Pieces() : parts[peer];
    return {.sends = operands_and_results(parts[peer], results, cut.window),
            .receives = operands_and_results(parts[own], theirs, cut.window)};
  });
  stream.reduces = true;
  stream.part = parts[own];
  stream.mutual = mutual;
  return stream;
}

Stream reduce_scatter_stream(int rank, std::span<const Ranges> parts, const Ranges& own, const Cut& cut) {
  const Pieces own_part = cut_up(own, cut);
  auto stream = stream_of(rank, parts.size(), cut, [&](std::size_t peer) -> Lane {
    return {.sends = messages(cut_up(parts[peer], cut), Kind::operand),
            .receives = messages(own_part, Kind::operand)};
  });
  stream.reduces = true;
  stream.part = own_part;
  return stream;
}

Stream all_gather_stream(int rank, std::span<const Ranges> parts, const Cut& cut) {
  const Pieces given = cut_up(parts[static_cast<std::size_t>(rank)], cut);
  return stream_of(rank, parts.size(), cut, [&](std::size_t peer) -> Lane {
    return {.sends = messages(given, Kind::own), .receives = messages(cut_up(parts[peer], cut), Kind::own)};
  });
}

// The root gives each other rank one part, which this rank sends to the others.
Stream broadcast_stream(int rank, int size, int root, const ElementRange& data, const Cut& cut) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto part_of_rank = [&](std::size_t of) {
    const auto part = part_of(data.count, of - (of > static_cast<std::size_t>(root) ? 1 : 0), ranks - 1);
    return cut_up({{data.first + part.first, part.count}}, cut);
  };
  const Pieces own_part = rank == root ? Pieces() : part_of_rank(static_cast<std::size_t>(rank));
  return stream_of(rank, ranks, cut, [&](std::size_t peer) -> Lane {
    if (rank == root) return {.sends = messages(part_of_rank(peer), Kind::own)};
    if (static_cast<int>(peer) == root) return {.receives = messages(own_part, Kind::own)};
    return {.sends = messages(own_part, Kind::result),
            .receives = messages(part_of_rank(peer), Kind::result)};
  });
}

Stream all_to_all_stream(int rank, std::span<const Ranges> sent, std::span<const Ranges> received,
                         const Cut& cut) {
  return stream_of(rank, sent.size(), cut, [&](std::size_t peer) -> Lane {
    return {.sends = messages(cut_up(sent[peer], cut), Kind::own),
            .receives = messages(cut_up(received[peer], cut), Kind::own)};
  });
}

}  // namespace farandole
