// Detects collectives that last too long. Every rank that is concerned reports its activity, and one
// rank prints a summary. watchdog.h has the protocol as a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/self_watch.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

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
  // Takes an alert of the kind `ask` or `status`.
  void take(const Alert& alert, std::int64_t now_ns);
  // True while a stall is being reported; tick() must then be called more often.
  bool busy() const { return stall_ && stall_->stage != Stage::told; }
  // True if the stall was summarized or enough time has passed for it.
  bool is_told(std::int64_t now_ns) const;

 private:
  enum class Stage {
    asked,  // the ranks of this group were asked what they do; collectors have asked the other groups
    sent,   // this group's statuses were sent to the collectors
    told,   // the summary was printed, by this rank or by another one
  };
  struct Stall {
    CallKey call;
    std::string text;  // describes the call
    std::int64_t opened_ns = 0, since_ns = 0;
    Stage stage = Stage::asked;
    bool concerned = false;  // this rank waits in it, or others wait for this rank
    bool waits_itself = false;
    std::int64_t look_again_ns = 0;   // then this rank looks whether its report is still true
    bool told_here = false;           // this rank has printed the summary
    std::map<int, RankStatus> heard;  // statuses of other groups, by rank
    std::set<int> heard_from;         // ranks that have sent anything
  };
  void look_for_stall(std::int64_t now_ns);
  void open(const CallKey& call, bool waits_itself, std::int64_t now_ns);
  void send_statuses(std::span<const int> to, std::int64_t now_ns);
  void send_to_collectors(std::int64_t now_ns);
  void sum_up(std::int64_t now_ns);
  void look_again(std::int64_t now_ns);
  void close_if_over(std::int64_t now_ns);

  WatchPost& post_;
  const RankLayout& layout_;
  SelfWatch& self_;
  std::atomic<std::int64_t> stall_ns_{0};
  const std::function<void(const std::string&)> say_;
  std::optional<Stall> stall_;
  std::optional<CallKey> over_;  // the last one; it is not reported again
};

}  // namespace farandole
