// What the ranks of a node say about themselves, in memory that they share: readable also where a rank is
// stopped or dead. A memfd, so nothing is left behind. Any thread reads; each slot is written by one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sys/types.h>

#include "farandole/comm/watch/peer_watch.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {

class StatusBoard {
 public:
  struct Address {  // of the creator's memfd; good until the creator calls close_address()
    std::int64_t pid = 0;
    std::int64_t fd = -1;
    std::uint64_t token = 0;
  };

  // A board of `slots` ranks, for others to open. Throws Error.
  static std::unique_ptr<StatusBoard> create(std::size_t slots);
  // The board of another process of this node. Throws Error.
  static std::unique_ptr<StatusBoard> open(const Address& address, std::size_t slots);
  // Of this process alone. Throws Error.
  static std::unique_ptr<StatusBoard> alone();
  ~StatusBoard();
  StatusBoard(const StatusBoard&) = delete;
  StatusBoard& operator=(const StatusBoard&) = delete;

  Address address() const;
  void close_address();
  std::size_t slots() const { return slots_; }

  // Also says that the slot's watchdog runs.
  void publish(std::size_t slot, const RankStatus& status, std::int64_t now_ns);
  // As last published; rank -1: never.
  RankStatus read(std::size_t slot) const;
  std::int64_t published_ns(std::size_t slot) const;
  // The rank goes in order, or has said itself why it goes: its end is no loss.
  void leave(std::size_t slot);
  bool left(std::size_t slot) const;

  // Asks every rank of the node what it does while others wait in this collective.
  void ask(const CallKey& stalled, std::int64_t now_ns);
  struct Question {
    CallKey stalled;
    std::int64_t asked_ns = 0;
  };
  std::optional<Question> question() const;  // the last

  // The first loss that anybody posts is the one that counts.
  void post_loss(const LostPeer& lost);
  std::optional<LostPeer> loss() const;
  // Some rank has said why the job ends.
  void post_ending();
  bool ending() const;

 private:
  struct Header;
  struct Slot;
  StatusBoard(int fd, std::size_t slots);
  Slot& slot(std::size_t index) const;

  int fd_;
  std::size_t slots_;
  Header* header_ = nullptr;
};

}  // namespace farandole
