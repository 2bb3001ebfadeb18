// Messages between two ranks of a group, with tags. They need no order among the other calls.
// Thread safety: any thread may call this at any time.
//
// A short message is sent at once, and waits at its receiver for a receive. A long one is offered, and a
// receive asks for its pieces, so that only few bytes are in flight.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/comm/control/message_channel.h"
#include "farandole/comm/queue/tickets.h"

namespace farandole {

class PointToPoint : private TicketWorker {
 public:
  static constexpr int any_source = -1;

  // Nothing else uses `channel`. `tickets` must outlive this.
  PointToPoint(std::unique_ptr<MessageChannel> channel, Tickets& tickets);
  // Messages that have not ended fail. No other thread may use this any more, but may wait for a ticket.
  ~PointToPoint() override;
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Peers are ranks of the group. Messages between two ranks with the same tag arrive in order. A receive
  // takes a message of exactly its size.
  // Throws: UserError if the peer is not in the group or the tag is negative. receive() and the wait for a
  // ticket throw UserError if the sizes differ.
  Ticket start_send(const void* data, std::size_t bytes, int peer, int tag);
  // `sender`, if not null, is set before the ticket ends.
  Ticket start_receive(void* data, std::size_t bytes, int source, int tag, int* sender = nullptr);
  // Returns when `data` may be used again, perhaps before the message was received.
  void send(const void* data, std::size_t bytes, int peer, int tag);
  int receive(void* data, std::size_t bytes, int source, int tag);  // returns the sender

 private:
  enum class Kind : std::uint32_t {
    whole,    // a short message with its data
    offer,    // a long message, without its data
    request,  // of the next piece of a message that was offered
    refusal,  // of a message that was offered
    piece,
  };
  // The first bytes of each message of the channel.
  struct Head {
    Kind kind;
    std::int32_t tag;
    std::uint64_t bytes;   // of the whole message
    std::uint64_t number;  // of an offer, of this sender
  };
  struct Envelope {
    int from;
    Head head;
    std::vector<std::byte> data;  // with the head
  };
  struct Transfer {
    std::byte* data;
    std::size_t bytes;
    int peer;  // also any_source
    int tag;
    int* sender;
    Ticket ticket;
    std::size_t moved = 0;
  };

  Ticket begin_send(const void* data, std::size_t bytes, int peer, int tag);
  Ticket begin_receive(void* data, std::size_t bytes, int source, int tag, int* sender);
  bool help(std::unique_lock<std::mutex>& lock, Ticket awaited) override;
  void work();
  void read(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  void handle(Message message);
  void take(const Envelope& envelope, const Transfer& receive);
  void send_piece(std::uint64_t number);
  void take_piece(int from, const Head& head, const std::vector<std::byte>& message);
  void tell(int to, const Head& head, const std::byte* data = nullptr, std::size_t bytes = 0);
  void end_all(const std::exception_ptr& error);
  void start_thread_if_needed();
  bool is_idle() const { return receives_.empty() && coming_.empty() && sends_.empty(); }
  void check(int peer, int tag) const;

  const std::unique_ptr<MessageChannel> channel_;
  Tickets& tickets_;
  // The mutex of the tickets guards what follows.
  std::list<Envelope> arrived_;                               // and fit no receive, in order
  std::list<Transfer> receives_;                              // to which nothing fits, in order
  std::map<std::pair<int, std::uint64_t>, Transfer> coming_;  // by sender and number: receives of offers
  std::map<std::uint64_t, Transfer> sends_;                   // that were offered
  std::uint64_t offers_ = 0;
  bool is_reading_ = false;  // a thread handles messages of the channel
  bool stop_ = false;
  std::condition_variable changed_;
  std::thread thread_;  // starts with the first message that does not end at once
};

}  // namespace farandole
