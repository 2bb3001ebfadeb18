// The schedule of an allreduce between nodes: which pieces of its data a rank of a leader group sends to and
// receives from each other rank, and in which order. Plain values.
//
// Every rank exchanges data with every other rank directly. The data is split into one part for each rank.
// This rank receives the values of all others for its part, combines them, and sends the result to all. Each
// rank sends and receives as many bytes as in a ring, but in two steps for any number of ranks.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <vector>

namespace farandole {

struct ElementRange {
  std::size_t first = 0, count = 0;
};

// Part `part` of `parts` nearly equal ones. Parts begin at multiples of 64 elements, and so at cache lines.
ElementRange part_of(std::size_t count, std::size_t part, std::size_t parts);

// How data is cut into pieces.
struct Cut {
  std::size_t elements = 0;  // of the largest piece
  // Number of pieces that a rank sends to each other rank before it needs one from there.
  std::size_t window = 1;
};

// What a rank exchanges with one other rank, in this order.
struct Lane {
  enum class Kind {
    operand,  // values of the sender, which the receiver combines with its own
    result,   // a piece of the sender's part, when it is complete
  };
  struct Message {
    ElementRange piece;
    Kind kind;
  };
  int peer = 0;
  std::vector<Message> sends = {}, receives = {};
};

struct Stream {
  std::vector<Lane> lanes;
  // The pieces of this rank's part. Each is complete when the values of all other ranks have been combined
  // with those of this rank.
  std::vector<ElementRange> part;
  Cut cut;
  bool mutual = false;  // two ranks send each other the same pieces, and both combine them
};

Stream allreduce_stream(int rank, int size, std::size_t count, const Cut& cut);

}  // namespace farandole
