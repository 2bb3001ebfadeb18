// The statuses of a node's ranks in shared memory, readable even if a rank is stopped or dead. It is a memfd,
// so nothing is left behind.
// Thread safety: any thread may call this at any time. One thread writes each slot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "farandole/base/process/process_state.h"
#include "farandole/comm/shm/shared_arena.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {

class StatusBoard {
 public:
  // Creates a board for `slots` ranks, which others can open.
  // Throws: Error if this fails.
  static std::unique_ptr<StatusBoard> create(std::size_t slots);
  // Opens the board of another process of this node.
  // Throws: Error if this fails.
  static std::unique_ptr<StatusBoard> open(const ArenaAddress& address, std::size_t slots);
  // Creates a board for this process alone.
  // Throws: Error if this fails.
  static std::unique_ptr<StatusBoard> alone();

  // Of a created board: the address for open(), valid until close_address().
  ArenaAddress address() const { return arena_->address(); }
  void close_address() {
    if (arena_ != nullptr) arena_->close_descriptor();
  }
  std::size_t slots() const { return slots_; }

  // Stores a status. This also shows that the slot's watchdog runs.
  void publish(std::size_t slot, const RankStatus& status, std::int64_t now_ns);
  // The last published status; rank -1 if there is none.
  RankStatus read(std::size_t slot) const;
  std::int64_t published_ns(std::size_t slot) const;
  // The rank ends normally or has reported why it ends, so its end is not a loss.
  void leave(std::size_t slot);
  bool left(std::size_t slot) const;

  // Asks every rank of the node for its activity while others wait in this collective.
  void ask(const CallKey& stalled, std::int64_t now_ns);
  struct Question {
    CallKey stalled;
    std::int64_t asked_ns = 0;
  };
  std::optional<Question> question() const;  // the last question

  // Only the first loss that is posted counts.
  void post_loss(const LostRank& lost);
  std::optional<LostRank> loss() const;
  // A rank reports why the job ends. Returns false if another rank does so already.
  bool post_ending();
  bool ending() const;

 private:
  struct Header;
  struct Slot;
  StatusBoard(std::shared_ptr<SharedArena> arena, std::unique_ptr<ArenaMapping> mapping, std::byte* memory,
              std::size_t slots);
  static std::size_t bytes_for(std::size_t slots);
  Slot& slot(std::size_t index) const;

  const std::shared_ptr<SharedArena> arena_;     // of a created board
  const std::unique_ptr<ArenaMapping> mapping_;  // of another board
  std::size_t slots_;
  Header* header_ = nullptr;
};

}  // namespace farandole
