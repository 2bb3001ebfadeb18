// Collectives between nodes. A leader group has one rank of each node; rank numbers in it are node numbers.
// Thread safety: none; use from one thread at a time.
//
// Each message begins with a header that carries the hash of the call, and is checked before the data behind
// it is used. A rank that receives another hash, or learns that some rank did, passes this on. Every rank of
// the group knows it when the operation ends.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/net/link.h"
#include "farandole/comm/net/link_wait.h"
#include "farandole/comm/net/stream.h"

namespace farandole {

// How values travel between nodes.
enum class Wire {
  exact,
  bfloat16,  // rounded to bfloat16. All ranks get the same bits.
};

// The data that a rank sends and receives through its leader group. The functions are called with
// ranges of elements.
class Slice {
 public:
  virtual ~Slice() = default;
  // Reduces the values of this node's ranks into `data`. Called once for each element before it is sent or
  // combined. By default, this node has only one rank.
  virtual void gather(std::size_t /*first*/, std::size_t /*count*/) {}
  // Scales values that are reduced. Called on one node for each element, or on both if there are two.
  virtual void scale(std::size_t /*first*/, std::size_t /*count*/) {}
  // The elements have their final values. Called once for each element that was received or combined;
  // distributes them in the node.
  virtual void finish(std::size_t /*first*/, std::size_t /*count*/) {}

  std::byte* data = nullptr;          // of this rank; input and result
  const std::byte* source = nullptr;  // what is sent, if it is not in `data`
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;  // between nodes; not average
  Wire wire = Wire::exact;      // bfloat16 only for sums of float32
};

// Peers with which a rank of a leader group of `size` ranks exchanges messages, by rank.
std::vector<bool> needed_links(int rank, int size);

class LeaderGroup {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{128} << 10;
  // The largest piece of a stream.
  static std::size_t piece_elements(DType dtype) { return piece_bytes / size_of(dtype); }

  // `links` are those of needed_links().
  LeaderGroup(int rank, int size, std::vector<std::unique_ptr<Link>> links);

  // Sets how many pieces of a stream are sent before the next one is received. If few bytes are in flight,
  // they stay in the caches: 64 MiB between two hosts of one machine moved with 2.9 GB/s each way for a
  // window of 1, and with 1.2 GB/s without a limit. Long distances need more.
  void set_window(std::size_t pieces) { window_ = pieces; }
  // Starts an exchange: a small reduction in place, or only a comparison of the calls if count is 0.
  // `mismatch` tells the other ranks that the calls differ within this node.
  void start_small(std::uint64_t call_hash, bool mismatch, std::byte* data, std::size_t count, DType dtype,
                   ReduceOp op);
  // Starts a collective of any size. `slice` must live until it is complete.
  void start(std::uint64_t call_hash, Slice& slice, Stream stream);
  // The same for ranks that have already compared this call.
  void start_agreed(Slice& slice, Stream stream);
  // Works without waiting. Returns true if something moved.
  // Throws: Error if a link fails.
  bool advance();
  bool busy() const { return phase_ != Phase::idle; }
  // True while the ranks of the group still compare their calls.
  bool exchanging() const { return phase_ == Phase::exchange; }
  // The hash of the call for which the last operation was started.
  std::uint64_t last_call() const { return call_hash_; }
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

  void enter_round();
  bool advance_round();
  void leave_round();
  void enter_stream();
  void greet();
  bool advance_stream();
  bool post_sends();
  bool post_receives();
  bool use_received();
  void use(std::size_t receive);
  void give_up();
  bool narrows() const { return slice_->wire == Wire::bfloat16; }
  std::size_t bytes_of(const ElementRange& piece) const;
  const std::byte* packed(std::size_t send);
  void combine(const ElementRange& piece, const std::byte* received);
  std::byte* landing(std::size_t receive);
  bool may_overwrite(std::size_t receive) const;
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
  std::vector<std::byte> packed_;  // pieces that are sent as bfloat16
  std::size_t window_ = 1;

  // Recursive doubling.
  std::size_t round_ = 0;
  std::byte* data_ = nullptr;
  std::size_t count_ = 0;
  DType dtype_ = DType::float32;
  ReduceOp op_ = ReduceOp::sum;

  // A stream of pieces.
  Slice* slice_ = nullptr;
  Stream stream_;
  Link* out_ = nullptr;
  Link* in_ = nullptr;
  bool header_pending_ = false;  // the stream begins with a header, which has not arrived
  std::size_t posted_sends_ = 0, posted_receives_ = 0, used_ = 0;
  std::uint64_t sent_at_start_ = 0, received_at_start_ = 0;
};

// Works and waits while the group is `pending`, which is busy() or exchanging().
void drive(LeaderGroup& group, bool (LeaderGroup::*pending)() const, LinkWait wait);

}  // namespace farandole
