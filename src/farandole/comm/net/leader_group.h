// Reductions between nodes. A leader group has one rank of each node; rank numbers in it are node numbers.
// Thread safety: none; use from one thread at a time.
//
// Each message begins with a header that carries the hash of the call, and is checked before the data behind it
// is used. A rank that receives another hash, or learns that some rank did, passes this on. Every rank of the
// group knows it when the operation ends.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/net/link.h"

namespace farandole {

// A part of an allreduce that a rank takes through its leader group. Steps are called with ranges of elements.
class Slice {
 public:
  virtual ~Slice() = default;
  // Reduces the values of this node's ranks. Called once for each element before it is sent or combined.
  virtual void gather(std::size_t first, std::size_t count) = 0;
  // The elements have their final values. Called once for each element; distributes them in the node.
  // `scaled` is true if another node has already scaled them.
  virtual void finish(std::size_t first, std::size_t count, bool scaled) = 0;

  std::byte* data = nullptr;  // of this rank; input and result
  std::size_t count = 0;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;  // between nodes; not average
};

// Peers with which a rank of a leader group of `size` ranks exchanges messages, by rank.
std::vector<bool> needed_links(int rank, int size);

class LeaderGroup {
 public:
  // `links` are those of needed_links().
  LeaderGroup(int rank, int size, std::vector<std::unique_ptr<Link>> links);

  // Sets how many pieces of a slice (128 KiB each) are sent before the next one is received. If few bytes are
  // in flight, they stay in the caches: 64 MiB between two hosts of one machine moved with 2.9 GB/s each way
  // for a window of 1, and with 1.2 GB/s without a limit. Long distances need more.
  void set_window(std::size_t pieces) { window_ = pieces; }
  // Starts an exchange: a small reduction in place, or only a comparison of the calls if count is 0.
  // `mismatch` tells the other ranks that the calls differ within this node.
  void start_small(std::uint64_t call_hash, bool mismatch, std::byte* data, std::size_t count, DType dtype,
                   ReduceOp op);
  // Starts the reduction of a slice of any size. `slice` must live until the reduction is complete.
  void start(std::uint64_t call_hash, Slice& slice);
  // Works without waiting. Returns true if something moved.
  // Throws: Error if a link fails.
  bool advance();
  bool complete() const { return phase_ == Phase::idle; }
  // True while the ranks of the group still compare their calls.
  bool exchanging() const { return phase_ == Phase::exchange; }
  // True if the calls of the last operation differ. Its data is undefined then.
  bool mismatch() const { return mismatch_; }
  // The links that the operation in progress uses.
  std::span<Link* const> active() const { return active_; }

 private:
  enum class Phase { idle, exchange, stream };
  struct Header {
    std::uint64_t call_hash = 0;
    std::uint32_t mismatch = 0;
    std::uint32_t has_data = 0;
  };
  // One exchange with a peer in recursive doubling.
  struct Round {
    int peer;
    bool sends;
    enum class Receives { nothing, operand, result } receives;
  };
  struct Piece {
    std::size_t first;
    std::size_t count;
  };

  void enter_round();
  bool advance_round();
  void leave_round();
  void enter_stream();
  bool advance_stream();
  void cut_stream();
  bool post_sends();
  bool post_receives();
  bool use_received();
  void use(std::size_t receive);
  void give_up();
  std::byte* landing(std::size_t receive);
  std::size_t landings() const { return window_ + 1; }  // pieces that can be received before they are used

  int rank_, size_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Round> rounds_;
  std::vector<Link*> active_;
  Phase phase_ = Phase::idle;
  bool mismatch_ = false;
  std::uint64_t call_hash_ = 0;
  Header own_header_, their_header_;
  std::vector<std::byte> scratch_;
  std::size_t window_ = 1;

  // Recursive doubling.
  std::size_t round_ = 0;
  std::byte* data_ = nullptr;
  std::size_t count_ = 0;
  DType dtype_ = DType::float32;
  ReduceOp op_ = ReduceOp::sum;

  // A stream of pieces, to the next rank and from the previous one.
  Slice* slice_ = nullptr;
  Link* out_ = nullptr;
  Link* in_ = nullptr;
  bool header_pending_ = false;  // the stream begins with a header, which has not arrived
  std::vector<Piece> sends_, receives_;
  std::vector<std::size_t> sent_before_;  // by receive: number of sends that must be complete before it
  std::size_t own_pieces_ = 0;            // sends that this rank gathers; the others were received before
  std::size_t operands_ = 0;              // receives that are combined; the others are results
  std::size_t last_operands_ = 0;         // the first receive whose combination is the final value
  std::size_t posted_sends_ = 0, posted_receives_ = 0, used_ = 0;
  std::uint64_t sent_at_start_ = 0, received_at_start_ = 0;
};

}  // namespace farandole
