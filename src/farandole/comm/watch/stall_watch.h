// Finds collectives that last too long and has every rank that they concern say what it does; one rank sums
// up.
//
// A rank that has waited for `stall_ns` asks the ranks of its node through the status board. The lowest
// responsive rank of each node sends its node's statuses to the collectors, the first two ranks of the first
// two nodes; those ask the nodes that they have heard nothing from. The first responsive collector prints the
// summary, so it needs neither rank 0 nor rank 0's node, and 1,024 ranks send a few thousand messages, once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/self_watch.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

// Used by the watchdog's thread. The references outlive it.
class StallWatch {
 public:
  // `say` prints a text in this rank's name. Silent until set_threshold().
  StallWatch(WatchPost& post, const RankLayout& layout, SelfWatch& self,
             std::function<void(const std::string&)> say);

  // From any thread. 0: this rank finds no stall itself.
  void set_threshold(std::int64_t stall_ns) { stall_ns_ = stall_ns; }

  // Several times a second, after the rank's status was published.
  void tick(std::int64_t now_ns);
  void take(const Alert& alert, std::int64_t now_ns);
  // Something goes on: tick more often.
  bool busy() const { return stall_.has_value() && !stall_->summed_up; }
  // The stall was summed up, or there was time enough for it.
  bool is_told(std::int64_t now_ns) const;
  // The first responsive one sums up; first choice first.
  const std::vector<int>& collectors() const { return collectors_; }
  // Whether this rank is the lowest of its node's that run.
  bool speaks_for_node(std::int64_t now_ns) const;

 private:
  struct Stall {
    CallKey call;
    std::string text;  // of the call
    std::int64_t opened_ns = 0, since_ns = 0;
    bool concerned = false;  // this rank waits in it, or is waited for
    bool sent = false;       // this node's statuses, and asked the silent nodes
    bool summed_up = false;  // here, or left to another rank
    bool summed_up_here = false;
    std::map<int, RankStatus> heard;  // from other nodes, by rank
    std::set<int> here;               // who has sent anything
  };
  void open(const CallKey& call, bool waits_itself, std::int64_t now_ns);
  void close_if_over(std::int64_t now_ns);
  void exchange(std::int64_t now_ns);
  void send_node(std::span<const int> to, std::int64_t now_ns);
  bool collects() const;
  bool is_left_to_another(std::int64_t now_ns) const;
  void sum_up(std::int64_t now_ns);
  std::vector<RankStatus> node_statuses(std::int64_t now_ns) const;
  Life life_of(std::size_t slot, const RankStatus& status, std::int64_t now_ns) const;

  WatchPost& post_;
  const RankLayout& layout_;
  SelfWatch& self_;
  std::atomic<std::int64_t> stall_ns_{0};
  const std::function<void(const std::string&)> say_;
  const std::vector<int> collectors_;
  std::optional<Stall> stall_;
  std::optional<CallKey> over_;  // the last one, which is not to be opened again
};

}  // namespace farandole
