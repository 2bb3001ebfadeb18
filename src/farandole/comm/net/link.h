// A connection to one rank on another node. It carries messages in both directions at the same time.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "farandole/comm/shm/node_barrier.h"

namespace farandole {

class Link {
 public:
  virtual ~Link() = default;

  // Queue a message. Messages arrive in the order in which they were queued, and the receiver must queue the
  // same sizes in the same order. The memory belongs to the link until the message is complete.
  virtual void send(const std::byte* data, std::size_t bytes) = 0;
  virtual void receive(std::byte* data, std::size_t bytes) = 0;
  // Moves what can move without waiting. Returns true if anything moved.
  // Throws: Error with ExitCode::peer_lost if the connection is closed.
  virtual bool progress() = 0;
  // Number of messages that are complete since the start. The memory of a sent message may be changed, but
  // the peer need not have received the message.
  std::uint64_t sent() const { return sent_; }
  std::uint64_t received() const { return received_; }
  // Drops all messages that are not complete. Afterwards the link can send, but what it
  // receives is undefined.
  virtual void abandon() = 0;
  // False if a message that was queued before abandon() may still be written into its memory afterwards. Then
  // queue data only when the ranks have compared their calls.
  virtual bool abandons_at_once() const { return true; }

  // Moves what a message that is complete for this rank has still to bring to the peer, if the system does
  // not do so. Call this regularly during other waits.
  virtual void keep_moving() {}

  // A descriptor on which poll() can wait for `events()`, or -1 if the link has none.
  virtual int descriptor() const { return -1; }
  virtual short events() const { return 0; }

 protected:
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

// Waits until a link can move data.
class LinkWait {
 public:
  // `look_around` is called about every 50 ms. An exception from it ends the wait.
  explicit LinkWait(
      Patience patience, std::function<void()> look_around = [] {})
      : patience_(patience), look_around_(std::move(look_around)) {}

  // Data has moved, so the next wait spins again.
  void moved() { give_up_ns_ = 0; }
  // Call this if nothing moved. First returns after a moment; after repeated calls, sleeps until one of the
  // links can move data.
  void idle(std::span<Link* const> links);

 private:
  void sleep(std::span<Link* const> links);

  Patience patience_;
  std::function<void()> look_around_;
  std::int64_t give_up_ns_ = 0;
  std::int64_t glance_ns_ = 0;
};

}  // namespace farandole
