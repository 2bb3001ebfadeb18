// Messages between two ranks of a group, with tags. They need no order among the other calls.
// Thread safety: any thread may call this at any time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mpi.h>
#include <mutex>
#include <thread>
#include <vector>

#include "farandole/comm/queue/tickets.h"

namespace farandole {

// A send or a receive that has begun.
struct MessageTransfer {
  MPI_Request request = MPI_REQUEST_NULL;
  std::size_t bytes = 0;
  int peer = 0;  // also any_source
  int tag = 0;
  bool receives = false;
  int* sender = nullptr;  // is set when it has ended
  Ticket ticket = 0;

  // True if the message was sent or received.
  // Throws: UserError if a message of another size came. Error if MPI has failed.
  bool test();
};

// Completes the messages of all groups. MPI transfers large messages only while someone asks for them. While
// there are any, a thread asks with growing pauses, or another thread that waits for one of them.
class MessageProgress : private TicketWorker {
 public:
  // `tickets` must outlive this.
  explicit MessageProgress(Tickets& tickets) : tickets_(tickets) {}
  // Messages that have not ended fail.
  ~MessageProgress() override;

  Ticket add(MessageTransfer transfer);

 private:
  bool help(std::unique_lock<std::mutex>& lock, Ticket awaited) override;
  bool test(std::unique_lock<std::mutex>& lock);
  void work();

  Tickets& tickets_;
  // The mutex of the tickets guards what follows.
  std::vector<MessageTransfer> transfers_;  // while is_testing_, only the testing thread uses them
  std::vector<MessageTransfer> added_;      // not among them yet
  bool is_testing_ = false;
  bool has_helper_ = false;
  bool stop_ = false;
  std::condition_variable changed_;
  std::thread thread_;  // starts with the first message that does not end at once
};

class PointToPoint {
 public:
  static constexpr int any_source = -1;

  // `progress` must outlive this.
  // Collective: every rank of `group` must call this in the same order.
  PointToPoint(MPI_Comm group, MessageProgress& progress);
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Peers are ranks of the group. Messages between two ranks with the same tag arrive in order. A message has
  // less than 2 GiB, and a receive takes a message of exactly its size.
  // Throws: UserError if the message is too large, the peer is not in the group, or the tag is negative.
  // receive() and the wait for a ticket throw UserError if the sizes differ.
  Ticket start_send(const void* data, std::size_t bytes, int peer, int tag);
  // `sender`, if not null, is set before the ticket ends.
  Ticket start_receive(void* data, std::size_t bytes, int source, int tag, int* sender = nullptr);
  // Returns when `data` may be used again, perhaps before the message was received.
  void send(const void* data, std::size_t bytes, int peer, int tag);
  int receive(void* data, std::size_t bytes, int source, int tag);  // returns the sender

 private:
  MessageTransfer begin_send(const void* data, std::size_t bytes, int peer, int tag) const;
  MessageTransfer begin_receive(void* data, std::size_t bytes, int source, int tag, int* sender) const;
  void check(std::size_t bytes, int peer, int tag) const;

  MessageProgress& progress_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int size_ = 1;
};

}  // namespace farandole
