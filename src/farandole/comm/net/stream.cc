#include "farandole/comm/net/stream.h"

#include <algorithm>

namespace farandole {
namespace {

using Pieces = std::vector<ElementRange>;
using Kind = Lane::Kind;
using Messages = std::vector<Lane::Message>;

Pieces cut_up(const ElementRange& range, const Cut& cut) {
  Pieces pieces;
  for (std::size_t done = 0; done < range.count; done += cut.elements)
    pieces.push_back({range.first + done, std::min(cut.elements, range.count - done)});
  return pieces;
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

}  // namespace

ElementRange part_of(std::size_t count, std::size_t part, std::size_t parts) {
  constexpr std::size_t aligned = 64;
  const auto first_of = [&](std::size_t which) {
    return std::min(count, (count * which / parts + aligned - 1) / aligned * aligned);
  };
  return {first_of(part), first_of(part + 1) - first_of(part)};
}

// Two ranks exchange all of their values at once. Each rank begins with the rank after it, so that they do
// not all send to the same one at first.
Stream allreduce_stream(int rank, int size, std::size_t count, const Cut& cut) {
  const auto ranks = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  const bool mutual = size == 2;
  std::vector<Pieces> parts;
  for (std::size_t part = 0; part < ranks; ++part)
    parts.push_back(cut_up(mutual ? ElementRange{0, count} : part_of(count, part, ranks), cut));
  Stream stream{.lanes = {}, .part = parts[own], .cut = cut, .mutual = mutual};
  for (std::size_t distance = 1; distance < ranks; ++distance) {
    const std::size_t peer = (own + distance) % ranks;
    const Pieces results = mutual ? Pieces() : parts[own], theirs = mutual ? Pieces() : parts[peer];
    stream.lanes.push_back({.peer = static_cast<int>(peer),
                            .sends = operands_and_results(parts[peer], results, cut.window),
                            .receives = operands_and_results(parts[own], theirs, cut.window)});
  }
  return stream;
}

}  // namespace farandole
