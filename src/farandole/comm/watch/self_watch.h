// What this rank does, seen from its watchdog's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/comm/watch/thread_probe.h"

namespace farandole {

// Used by one thread. The references outlive it.
class SelfWatch {
 public:
  SelfWatch(int rank, const CollectiveRegistry& calls, ThreadProbe& probe);

  // Looks again; cheap. Time in which this process did not run (stopped, suspended) counts as no waiting.
  void look(std::int64_t now_ns);
  const RankStatus& status() const { return status_; }
  // How long the longest call in flight has lasted while this process ran; 0: there is none.
  std::int64_t waited_ns() const { return waited_ns_; }
  // Since when this process has run without a pause.
  std::int64_t runs_since_ns() const { return runs_since_ns_; }
  // Whether this rank has been through the collective; nothing where it has no part in the communicator.
  std::optional<bool> is_past(const CallKey& call) const;

  // Asks the training thread, and says in status() what it found; the report for people. `stalled`: where
  // others wait for this rank.
  std::string report(const std::string& host, std::optional<CallKey> stalled);
  // What the collective stands for on this rank.
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

}  // namespace farandole
