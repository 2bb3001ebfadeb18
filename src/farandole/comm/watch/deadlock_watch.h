// Looks for deadlocks while all ranks wait. It also tells what all ranks of the job do now.
//
//   when                                     a rank
//   the ranks of its node are calm           speaker of any node but the first sends their statuses to the
//                                            collectors of the first, once
//   alert `probe`                            speaker answers with the statuses of its node
//   all ranks are calm, deadlock found       the first node's speaker sends `probe`
//   it finds the same a moment later         it ends the job
//
// A rank is calm while it waits in collectives, or has left, and its calls have not changed for calm_takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

// The references must outlive this object.
// Thread safety: none; use from one thread at a time.
class DeadlockWatch {
 public:
  DeadlockWatch(WatchPost& post, const RankLayout& layout) : post_(post), layout_(layout) {}

  // Call this several times per second, after the rank's status was published. Returns a sentence if a
  // deadlock is proven and this rank must end the job.
  std::optional<std::string> tick(std::int64_t now_ns);
  // Takes an alert of the kind `probe` or `calm`.
  void take(const Alert& alert, std::int64_t now_ns);

  // Asks the other nodes for the statuses of their ranks; they arrive within WatchTimes::nodes_take.
  void ask();
  // What is known of all ranks, by rank.
  std::vector<RankStatus> statuses(std::int64_t now_ns) const;

 private:
  using CallsOfRanks = std::vector<std::int64_t>;
  void send_statuses(int to, std::int64_t now_ns);
  std::optional<std::string> decide(std::int64_t now_ns);

  WatchPost& post_;
  const RankLayout& layout_;
  std::map<int, RankStatus> heard_;  // of ranks of other nodes, since ask()
  CallsOfRanks sent_;                // the state that was sent last
  CallsOfRanks found_;               // the deadlock that was found first
  std::int64_t found_ns_ = 0;
};

}  // namespace farandole
