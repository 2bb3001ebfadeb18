// Allreduces and messages between nodes. A leader group has one rank of each node; rank numbers in it
// are node numbers.
// Thread safety: none; use from one thread at a time.
//
// Each message of a reduction begins with a header that carries the hash of the call, and is checked before
// the data behind it is used. A rank that receives another hash, or learns that some rank did, tells all
// others. Every rank of the group knows it when the operation ends.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/net/link.h"
#include "farandole/comm/net/stream.h"

namespace farandole {

class LeaderGroup {
 public:
  using Messages = std::vector<std::span<std::byte>>;

  // `links` by rank; null for this rank.
  LeaderGroup(int rank, int size, std::vector<std::unique_ptr<Link>> links);

  // Sets how many pieces of a stream are sent before the next one is received. If few bytes are in flight,
  // they stay in the caches: 64 MiB between two hosts of one machine moved with 2.9 GB/s each way for a
  // window of 1, and with 1.2 GB/s without a limit. Long distances need more.
  void set_window(std::size_t pieces) { window_ = pieces; }
  // How streams are cut if their messages have values of this type.
  Cut cut(DType dtype) const { return {piece_bytes(size_) / size_of(dtype), window_}; }
  // Of the largest piece in a group of `size` ranks. All ranks together have about as much in flight for any
  // size: if networks drop packets, TCP sometimes waits for 200 ms.
  static std::size_t piece_bytes(int size);
  // Starts an exchange: a small reduction in place, or only a comparison of the calls if count is 0.
  // `mismatch` tells the other ranks that the calls differ within this node.
  void start_small(std::uint64_t call_hash, bool mismatch, std::byte* data, std::size_t count, DType dtype,
                   ReduceOp op);
  // Starts an allreduce of any size. `slice` must live until it is complete.
  void start(std::uint64_t call_hash, Slice& slice, Stream stream);
  // Starts messages to one rank and from one, perhaps the same. More may be started before these are
  // complete. The ranks have compared their calls before, and both ends of a message know its size. Its
  // memory must live until the group is not busy any more. Returns the number of bytes.
  std::size_t start_messages(int to, const Messages& sends, int from, const Messages& receives);
  // Works without waiting. Returns true if something moved.
  // Throws: Error if a link fails.
  bool advance();
  bool busy() const { return phase_ != Phase::idle; }
  // True while the ranks of the group still compare their calls.
  bool exchanging() const { return phase_ == Phase::exchange || phase_ == Phase::telling; }
  // This rank has learned elsewhere that the calls differ. Tells the other ranks if they may not know it. The
  // slice of the current operation is not used any more.
  void refuse(std::uint64_t call_hash);
  // Drops what other ranks will not receive, or not send, because the calls differ. The group is not
  // used any more.
  void abandon();
  // True if the calls of the last operation differ. Its data is undefined then.
  bool mismatch() const { return mismatch_; }
  // Call this regularly during waits for ranks of the own node.
  void keep_moving();
  // The links that the operation in progress uses.
  std::span<Link* const> active() const { return active_; }

 private:
  enum class Phase {
    idle,
    exchange,  // recursive doubling
    stream,
    telling,  // the calls differ, and headers are on their way to ranks that must know it
    messages,
  };
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
  // Another rank of the group, in the current operation.
  struct Peer {
    std::uint64_t sent_before = 0, received_before = 0;  // of the link
    Header header = {};                                  // from this rank
    bool told = false;                                   // the own header is queued or sent
    bool heard = false;                                  // its header has arrived
    std::uint64_t sends = 0, receives = 0;               // messages without headers
  };

  void enter_round();
  bool advance_round();
  void leave_round();
  void begin(std::uint64_t call_hash);
  void find_active();
  void greet();
  bool advance_stream();
  bool check_headers();
  void tell_all();
  bool advance_telling();
  bool advance_messages();
  Link& link_to(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  bool differs(const Header& header, bool has_data) const;

  int rank_, size_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Round> rounds_;
  std::vector<Link*> active_;
  Phase phase_ = Phase::idle;
  bool mismatch_ = false;
  std::uint64_t call_hash_ = 0;
  Header own_header_;
  std::vector<Peer> peers_;  // by rank
  std::size_t window_ = 1;

  // Recursive doubling.
  std::size_t round_ = 0;
  std::byte* data_ = nullptr;
  std::size_t count_ = 0;
  DType dtype_ = DType::float32;
  ReduceOp op_ = ReduceOp::sum;
  std::vector<std::byte> scratch_;

  // A stream of pieces.
  StreamExchange exchange_;
  int headers_missing_ = 0;  // that have not arrived
};

// Works and waits while the group is `pending`, which is busy() or exchanging().
void drive(LeaderGroup& group, bool (LeaderGroup::*pending)() const, LinkWait wait);

}  // namespace farandole
