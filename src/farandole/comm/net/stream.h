// The schedules of collectives between nodes: which pieces of its data a rank of a leader group sends and
// receives, and in which order. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace farandole {

struct ElementRange {
  std::size_t first = 0, count = 0;
};

// Part `part` of `parts` nearly equal ones. Parts begin at multiples of 64 elements, and so at cache lines.
ElementRange part_of(std::size_t count, std::size_t part, std::size_t parts);

struct Stream {
  int to = 0, from = 0;             // ranks in the leader group
  std::vector<ElementRange> sends;  // pieces, in this order
  std::vector<ElementRange> receives;
  // By receive: number of sends that must be complete before the memory of its piece may be changed.
  std::vector<std::size_t> sent_before;
  // Sends that consist of this rank's own values. The later ones are pieces that this rank has received, in
  // the order in which it receives them.
  std::size_t own = 0;
  // Receives that are combined with the values of this rank. The later ones are results.
  std::size_t operands = 0;
  std::size_t last_operands = 0;  // the first receive whose combination is a result
  bool mutual = false;            // two ranks send each other the same pieces
};

// The data of one rank. All ranks pass the same parts for a rank, but may keep them at other places.
using Ranges = std::vector<ElementRange>;

// Pieces have at most `most` elements.
Stream allreduce_stream(int rank, int size, std::size_t count, std::size_t most);
// Rank r receives the reduced parts[r].
Stream reduce_scatter_stream(int rank, std::span<const Ranges> parts, std::size_t most);
// Rank r contributes parts[r].
Stream all_gather_stream(int rank, std::span<const Ranges> parts, std::size_t most);
Stream broadcast_stream(int rank, int size, int root, const Ranges& data, std::size_t most);
// Sends parts to one rank and receives others from the same or another rank.
Stream exchange_stream(int to, const Ranges& sent, int from, const Ranges& received, std::size_t most);

}  // namespace farandole
