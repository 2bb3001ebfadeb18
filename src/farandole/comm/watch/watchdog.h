// Watches the job from a helper thread in every rank. It reports lost ranks and ranks that keep others
// waiting, and ends the job if this was requested. There is one object per process.
// Thread safety: call from the training thread only. Functions say where other threads may call them.
//
// The protocol among watchdogs needs no launcher, no run directory and no file system in common, and neither
// rank 0 nor its node. The ranks of a node share a status board. Alerts go to the first two ranks of other
// nodes. 1,024 ranks send a few thousand of them once. What a rank does (WatchTimes has the times):
//
//   when                  no stall is known   asked                  sent                  told
//   waits for too long    opens it
//   question on board     opens it
//   alert `ask`           opens it                                   speaker answers       speaker answers
//   alert `status`        opens and keeps it  keeps it               keeps it              keeps it
//   after ranks_take                          speaker sends → sent
//   after nodes_take                                                 leader prints → told
//   now and then                                                                           reports news of itself
//   its call has ended                                                                     → no stall
//
// To open a stall, a rank writes the question on the board, its node's collectors (the first two ranks of
// the first two nodes) send `ask` to the other nodes, and the rank prints its own report if it waits in the
// call or others wait for it. The speaker is the lowest running rank of a node; it sends the statuses of its
// node to the collectors. The leader is the first node's speaker, or the second node's speaker if the first
// node is silent.
//
//   when                   no loss is known                                    a rank is lost
//   a peer has ended       reports it; the speaker sends `loss`
//   `loss`, also on board  reports it
//   alert `ping`           answers `here`                                      answers `here`
//   SIGTERM                collectors send `ping`; the rest as below           ends
//   after roll_call_takes  the leader reports a node that has not answered
//   after news_takes       ends
//   after grace                                                                ends the job if it still waits
//
// deadlock_watch.h ends the job as soon as the ranks wait for each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/base/process/signal_event.h"
#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/deadlock_watch.h"
#include "farandole/comm/watch/self_watch.h"
#include "farandole/comm/watch/stall_watch.h"
#include "farandole/comm/watch/thread_probe.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

struct WatchdogOptions {
  double stall_seconds = 60;  // time in one collective until it is reported; 0 means never
  // Time until the job ends with ExitCode::peer_lost, unless a rank works meanwhile; 0 means never.
  double stall_abort_seconds = 1800;
  // The time in one collective after which a stall is reported, with or without an abort; 0 means never.
  double report_seconds() const;
  // The defaults, overridden by FARANDOLE_STALL_SECONDS and FARANDOLE_STALL_ABORT.
  // Throws: UserError if a variable is not a valid number.
  static WatchdogOptions from_environment();
  // `name` is the name of the option or variable.
  // Throws: UserError unless `text` is a number of seconds, at least 0.
  static double parse_seconds(std::string_view name, std::string_view text);
  // A limit in nanoseconds; limits that are too large for that become the largest.
  static std::int64_t to_ns(double seconds);
};

// Writes one line with the rank to stderr, past all buffers: the process may end at once.
void say_on_stderr(int rank, const std::string& text);

class Watchdog {
 public:
  // `calls` must outlive this object. `abort` ends the job with an exit code. If it is null, this only
  // reports, and leaves the program's signals alone.
  Watchdog(WatchPost post, RankLayout layout, CollectiveRegistry& calls, std::function<void(int)> abort);
  // Calls come_to_end() and leave(). If the job has several nodes, first waits for all ranks, so that none of
  // them is silent while others still wait; not after end_alone().
  ~Watchdog();
  void end_alone() { ends_alone_ = true; }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // This rank has come to the end of its work, where it waits until all ranks have come. It may work long
  // before it comes there, which is no stall. leave_end() is for a rank that goes on nevertheless.
  void come_to_end();
  void leave_end() { end_->leave(); }
  // Thread safety: any thread may call this at any time.
  void set_options(const WatchdogOptions& options);
  // This rank ends and its user knows the reason, so other ranks must not report it as lost. If `job_ends` is
  // true, a rank that is told to end does not wait for news of a loss either; then it returns whether this is
  // the first rank of the node that ends the job.
  bool leave(bool job_ends = false);
  // Call this before reporting a lost peer. Returns true if no report was made on this rank yet, and no rank
  // of this node has said why the job ends.
  bool claim_loss();

 private:
  void run();
  void tick();
  void receive(std::int64_t now_ns);
  void look_for_losses(std::int64_t now_ns);
  // `seen_here` means that no other rank has told this rank.
  void note_loss(const LostRank& lost, bool seen_here, std::int64_t now_ns);
  void mind_termination(std::int64_t now_ns);
  void call_the_roll();
  void close_the_roll(std::int64_t now_ns);
  void mind_abort(std::int64_t now_ns);
  bool others_work(std::int64_t now_ns);
  void mind_deadlock(std::int64_t now_ns);
  void end_job(ExitCode code);
  void say(const std::string& text) const;
  std::int64_t tick_ns() const;

  WatchPost post_;
  const RankLayout layout_;
  const std::shared_ptr<CollectiveEntry> end_;
  std::uint32_t ends_ = 0;
  const std::function<void(int)> abort_;
  ThreadProbe probe_;
  SelfWatch self_;
  StallWatch stalls_;
  DeadlockWatch deadlocks_;
  std::optional<Termination> termination_;
  StopEvent stop_;
  std::atomic<std::int64_t> abort_ns_{0};
  std::atomic<bool> loss_claimed_{false};
  std::atomic<bool> at_end_{false};  // the training thread waits for the other ranks in the destructor
  bool ends_alone_ = false;
  // Members of the watchdog thread.
  std::int64_t asked_ns_ = 0;      // when the ranks were asked whether they work; 0 if they were not
  std::int64_t ask_again_ns_ = 0;  // after a rank was found to work
  std::int64_t lost_ns_ = 0;       // when a loss was noticed; 0 if there was none
  // A peer has ended: its descriptor stays readable, so peers are no longer polled.
  bool peers_end_ = false;
  std::int64_t terminated_ns_ = 0;  // when SIGTERM was noticed; 0 if it was not
  std::set<int> answered_;          // ranks that answered the roll call
  bool leaving_ = false;            // the training thread has left
  bool ending_ = false;             // end_job() was called
  std::thread thread_;
};

// Collective: every rank of the job must call this in the same order.
std::unique_ptr<Watchdog> make_watchdog(ControlPlane& control, const RankLayout& layout,
                                        CollectiveRegistry& calls, std::function<void(int)> abort);

}  // namespace farandole
