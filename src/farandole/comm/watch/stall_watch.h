// Detects collectives that last too long. Every rank that is concerned reports its activity, and one
// rank prints a summary.
//
// A rank that has waited for `stall_ns` queries the ranks of its node through the status board. The lowest
// responsive rank of each node sends the statuses of its node to the collectors, which are the first two
// ranks of the first two nodes. The collectors query nodes that have not sent anything. The first
// responsive collector prints the summary. So neither rank 0 nor its node is needed, and 1,024 ranks send a
// few thousand messages once.
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
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/comm/watch/thread_probe.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

// The references must outlive this object.
// Thread safety: none; use from one thread at a time.
class SelfWatch {
 public:
  SelfWatch(int rank, const CollectiveRegistry& calls, ThreadProbe& probe);

  // Updates the status; cheap. Time during which this process did not run (stopped, suspended) does
  // not count as waiting.
  void look(std::int64_t now_ns);
  const RankStatus& status() const { return status_; }
  // The duration of the longest call in flight while this process ran; 0 if there is none.
  // Units: nanoseconds.
  std::int64_t waited_ns() const { return waited_ns_; }
  // The time since which this process has run without a pause.
  std::int64_t runs_since_ns() const { return runs_since_ns_; }
  // True if this rank has completed the collective; std::nullopt if it is not in the communicator.
  std::optional<bool> is_past(const CallKey& call) const;

  // Queries the training thread, stores the result in status(), and returns the report for people. `stalled`
  // is the collective in which others wait for this rank.
  std::string report(const std::string& host, std::optional<CallKey> stalled);
  // The contents of the collective on this rank.
  std::optional<CollectiveRegistry::Meaning> meaning(const CallKey& call) const;

 private:
  void add_call(const CollectiveStatus& call, std::int64_t now_ns);
  void forget_span();

  const CollectiveRegistry& calls_;
  ThreadProbe& probe_;
  RankStatus status_;
  std::int64_t looked_ns_ = 0;
  std::int64_t runs_since_ns_ = 0;
  std::int64_t waited_ns_ = 0;
};

// The references must outlive this object.
// Thread safety: none; use from one thread at a time. Only the watchdog thread may use this, except where a
// function says otherwise.
class StallWatch {
 public:
  // `say` prints a text with this rank's prefix. No stall is detected before set_threshold().
  StallWatch(WatchPost& post, const RankLayout& layout, SelfWatch& self,
             std::function<void(const std::string&)> say);

  // 0 means that this rank does not detect stalls itself.
  // Thread safety: any thread may call this at any time.
  void set_threshold(std::int64_t stall_ns) { stall_ns_ = stall_ns; }

  // Call this several times per second, after the rank's status was published.
  void tick(std::int64_t now_ns);
  void take(const Alert& alert, std::int64_t now_ns);
  // True while a stall is being reported; tick() must then be called more often.
  bool busy() const { return stall_.has_value() && !stall_->summed_up; }
  // True if the stall was summarized or enough time has passed for it.
  bool is_told(std::int64_t now_ns) const;
  // Ranks that may summarize, first choice first. The first responsive one does it.
  const std::vector<int>& collectors() const { return collectors_; }
  // True if this rank is the lowest running rank of its node.
  bool speaks_for_node(std::int64_t now_ns) const;

 private:
  struct Stall {
    CallKey call;
    std::string text;  // describes the call
    std::int64_t opened_ns = 0, since_ns = 0;
    bool concerned = false;  // this rank waits in it, or others wait for this rank
    bool sent = false;       // true after this node's statuses were sent and silent nodes were queried
    bool summed_up = false;  // by this rank, or left to another one
    bool summed_up_here = false;
    std::map<int, RankStatus> heard;  // statuses of other nodes, by rank
    std::set<int> here;               // ranks that have sent anything
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
  std::optional<CallKey> over_;  // the last one; it is not reported again
};

}  // namespace farandole
