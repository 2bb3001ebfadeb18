// What this rank does: its collectives in flight, the span of its training thread, and its stack.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/comm/watch/thread_probe.h"

namespace farandole {

// The references must outlive this object.
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
  // The same if the report says more than the last one: the thread answers only now, or is at another line
  // of Python. On a busy machine, a thread may answer late, or a question may come before the rank is
  // where it stays.
  std::optional<std::string> report_news(const std::string& host, std::optional<CallKey> stalled);
  // The contents of the collective on this rank.
  std::optional<CollectiveRegistry::Meaning> meaning(const CallKey& call) const;

 private:
  void look_at_work(std::int64_t now_ns);
  void add_call(const CollectiveStatus& call, std::int64_t now_ns);
  void forget_span();
  std::optional<ThreadSnapshot> take_stack();

  const CollectiveRegistry& calls_;
  ThreadProbe& probe_;
  RankStatus status_;
  std::int64_t looked_ns_ = 0;
  std::int64_t runs_since_ns_ = 0;
  std::int64_t waited_ns_ = 0;
  std::vector<CollectiveStatus> last_calls_;
  std::int64_t calm_since_ns_ = 0;
  bool place_asked_ = false;                   // since the calls have changed
  std::optional<std::string> reported_place_;  // in the last report; nullopt if the thread did not answer
  struct Work {
    std::int64_t at_ns = 0, cpu_ns = 0, moved_bytes = 0;
  } work_;  // of this process, at the beginning of the period that is being measured
};

}  // namespace farandole
