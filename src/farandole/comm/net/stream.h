// An allreduce between nodes, piece by piece: its schedule, which is a plain value and says which pieces of
// its data a rank of a leader group sends to and receives from each other rank, and in which order; the data;
// and the exchange over links.
//
// Every rank exchanges data with every other rank directly. The data is split into one part for each rank.
// This rank receives the values of all others for its part, combines them, and sends the result to all. Each
// rank sends and receives as many bytes as in a ring, but in two steps for any number of ranks.
// Thread safety: any thread may call this at any time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/net/link.h"
#include "farandole/comm/reduce_op.h"

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

// How values travel between nodes.
enum class Wire {
  exact,
  bfloat16,  // rounded to bfloat16. All ranks get the same bits.
};

// The data that a rank sends and receives through its leader group. The functions are called with
// ranges of elements.
// Thread safety: none; use from one thread at a time.
class Slice {
 public:
  virtual ~Slice() = default;
  // Reduces the values of this node's ranks into `data`. Called once for each element before it is sent from
  // there or combined. By default, this node has only one rank.
  virtual void gather(std::size_t /*first*/, std::size_t /*count*/) {}
  // Scales values that are reduced. Called on one node for each element, or on both if there are two.
  virtual void scale(std::size_t /*first*/, std::size_t /*count*/) {}
  // The elements have their final values. Called once for each element that was received or combined;
  // distributes them in the node.
  virtual void finish(std::size_t /*first*/, std::size_t /*count*/) {}
  // The type of the values in messages.
  DType wire_dtype() const { return wire == Wire::bfloat16 ? DType::bfloat16 : dtype; }

  std::byte* data = nullptr;  // of this rank; input and result
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;  // between nodes; not average
  Wire wire = Wire::exact;      // bfloat16 only for sums of float32
};

// Sends and receives the pieces of a stream over links, and combines them.
// Thread safety: none; use from one thread at a time.
class StreamExchange {
 public:
  // `links` by rank. They and `slice` must live until the stream is complete. On each link, a header in each
  // direction is queued and not complete yet.
  void start(int rank, Slice& slice, Stream stream, std::span<const std::unique_ptr<Link>> links);
  // Queues what can be sent and received now.
  bool post();
  // Uses what the links have moved.
  bool use();
  // Adds the links over which something must still be sent or received. The stream is complete if
  // there are none.
  void add_active(std::vector<Link*>& links) const;
  // Forgets the stream.
  void stop();

 private:
  // One lane of the stream. The counters are numbers of messages.
  struct Route {
    Link* link;
    std::uint64_t sent_before, received_before;  // of the link, when the stream began
    std::size_t sends_posted = 0, operands_posted = 0, results_posted = 0;
    std::size_t sends_complete = 0, operands_complete = 0, results_complete = 0;
    std::size_t receives_posted = 0, results_posted_for = 0, used = 0;
    bool finished = false;

    std::size_t sent() const { return std::max(link->sent(), sent_before) - sent_before; }
    std::size_t arrived() const { return std::max(link->received(), received_before) - received_before; }
  };

  bool post_sends(std::size_t lane);
  bool post_receives(std::size_t lane);
  bool may_send(std::size_t lane, const Lane::Message& message) const;
  const std::byte* packed(std::size_t lane, const Lane::Message& message);
  void count_complete(std::size_t lane);
  bool use_results(std::size_t lane);
  bool next_operands_are_here() const;
  void combine_next();
  void combine(const ElementRange& piece, std::size_t first, std::size_t count);
  bool narrows() const { return slice_->wire == Wire::bfloat16; }
  bool sends_narrow_results() const { return narrows() && !stream_.mutual; }
  std::size_t bytes_of(const ElementRange& piece) const;
  std::byte* place_of(const ElementRange& piece) const {
    return slice_->data + piece.first * size_of(slice_->dtype);
  }
  std::byte* landing(std::size_t lane, std::size_t receive);
  std::byte* packed_result(std::size_t result);
  // Messages of a lane that wait in memory at the same time.
  std::size_t slots() const { return stream_.cut.window + 1; }
  std::size_t slot_bytes() const { return stream_.cut.elements * size_of(slice_->wire_dtype()); }

  int rank_ = 0;
  Slice* slice_ = nullptr;
  Stream stream_;
  std::vector<Route> routes_;         // by lane
  std::size_t done_ = 0;              // pieces of this rank's part that are complete
  std::vector<std::byte> landings_;   // of messages that are not received into their places
  std::vector<std::byte> packed_;     // pieces that are sent as bfloat16
  std::vector<float> widened_;        // operands that came as bfloat16
  std::vector<std::byte*> operands_;  // by rank
};

// Reduces the values of all ranks of a leader group, by rank, in the order of recursive doubling: ranks
// beyond the largest power of two are added to their partners, then neighbours are added, then pairs of
// neighbours, and so on. `out` may be one of the inputs. Changes the inputs.
void reduce_in_tree(std::span<std::byte*> inputs, std::byte* out, std::size_t count, DType dtype,
                    ReduceOp op);

}  // namespace farandole
