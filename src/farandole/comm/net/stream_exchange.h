// Sends and receives the pieces of a stream over links, and combines them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farandole/comm/net/link.h"
#include "farandole/comm/net/slice.h"
#include "farandole/comm/net/stream.h"

namespace farandole {

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
