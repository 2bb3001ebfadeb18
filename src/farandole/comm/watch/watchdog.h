// Watches over the job from a thread of its own in every rank: names ranks that were lost and those that keep
// others waiting, and ends the job where that is asked for. One object a process, made and destroyed by the
// thread that trains, while MPI runs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "farandole/base/stop_event.h"
#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/stall_watch.h"
#include "farandole/comm/watch/termination.h"
#include "farandole/comm/watch/thread_probe.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

struct WatchdogOptions {
  double stall_seconds = 60;       // in one collective, until it is reported; 0: never
  double stall_abort_seconds = 0;  // until the job ends with ExitCode::peer_lost; 0: never
  // FARANDOLE_STALL_SECONDS and FARANDOLE_STALL_ABORT over the defaults. Throws UserError.
  static WatchdogOptions from_environment();
  // `name` is the option's or variable's. Throws UserError unless it is a number of seconds, at least 0.
  static double parse_seconds(std::string_view name, std::string_view text);
};

class Watchdog {
 public:
  // `calls` outlives it; `abort` ends the job with an exit code.
  Watchdog(WatchPost post, RankLayout layout, const CollectiveRegistry& calls,
           std::function<void(int)> abort);
  ~Watchdog();  // leave()s
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From any thread.
  void set_options(const WatchdogOptions& options);
  // This rank ends, and its user knows why: no other rank is to call it lost. `job_ends`: nor is any rank to
  // wait for news of a loss when it is told to end.
  void leave(bool job_ends = false);
  // For whoever is about to say that a peer was lost: whether nobody has on this rank yet.
  bool claim_loss();

 private:
  void run();
  void tick();
  void receive(std::int64_t now_ns);
  void look_for_losses(std::int64_t now_ns);
  void note_loss(const LostPeer& lost, bool seen_here, std::int64_t now_ns);
  void mind_termination(std::int64_t now_ns);
  void call_the_roll();
  void close_the_roll(std::int64_t now_ns);
  void mind_abort(std::int64_t now_ns);
  void end_job();
  void say(const std::string& text) const;
  int tick_ms() const;

  WatchPost post_;
  const RankLayout layout_;
  const std::function<void(int)> abort_;
  ThreadProbe probe_;
  SelfWatch self_;
  StallWatch stalls_;
  Termination termination_;
  StopEvent stop_;
  std::atomic<std::int64_t> abort_ns_{0};
  std::atomic<bool> loss_claimed_{false};
  // Of the thread.
  std::int64_t lost_ns_ = 0;        // when a loss was noticed; 0: not yet
  bool peers_end_ = false;          // their descriptors stay readable: no more waiting on them
  std::int64_t terminated_ns_ = 0;  // when SIGTERM was noticed
  std::set<int> answered_;          // the roll
  bool leaving_ = false;            // the training thread has left
  bool ending_ = false;             // has been asked to
  std::thread thread_;
};

// Collective over the job.
std::unique_ptr<Watchdog> make_watchdog(const RankLayout& layout, const CollectiveRegistry& calls);

}  // namespace farandole
