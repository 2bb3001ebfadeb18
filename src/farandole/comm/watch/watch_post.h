// The means by which a rank watches the others: shared memory and process descriptors on its own node,
// alerts for other nodes.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/process/process_state.h"
#include "farandole/comm/control/message_channel.h"
#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/comm/watch/status_board.h"

namespace farandole {

// All times of the protocol among watchdogs (watchdog.h). They work only together.
struct WatchTimes {
  // A watchdog looks this often; while it reports something; after it was told to end.
  static constexpr std::int64_t look = 250 * ns_per_ms, look_busy = 50 * ns_per_ms,
                                look_ending = 20 * ns_per_ms;
  // A watchdog that has not looked for so long did not run: its process was stopped or its host suspended.
  static constexpr std::int64_t longest_pause = 2000 * ns_per_ms;
  // Others call a watchdog silent that has published nothing for so long.
  static constexpr std::int64_t silent = 1500 * ns_per_ms;

  // How long a training thread has to show its stack.
  static constexpr std::int64_t stack_takes = 300 * ns_per_ms;
  // How long a question on the status board is valid. A rank that sees it later is no longer stuck.
  static constexpr std::int64_t question_lasts = 3000 * ns_per_ms;
  // After a rank has opened a stall: until all ranks of its node have reported, and until all nodes have
  // sent their statuses. Connections between nodes may have to be made first.
  static constexpr std::int64_t ranks_take = 600 * ns_per_ms, nodes_take = 2000 * ns_per_ms;
  // How long a rank keeps a stall open whose end it cannot see.
  static constexpr std::int64_t foreign_stall_lasts = 10'000 * ns_per_ms;

  // After a loss: until the job is ended if the training thread has not noticed it and ended in its own way.
  static constexpr std::int64_t grace = 500 * ns_per_ms;
  // mpirun sends SIGKILL one second after SIGTERM. Until then, news of a loss may arrive from other nodes.
  static constexpr std::int64_t mpirun_waits = 1000 * ns_per_ms, news_takes = 700 * ns_per_ms,
                                roll_call_takes = 500 * ns_per_ms;
  // Before --stall-abort ends the job: until the stall counts as reported, and how long the other ranks of
  // a node leave the end to its lowest rank.
  static constexpr std::int64_t report_takes = 5000 * ns_per_ms, speaker_takes = 1000 * ns_per_ms;
  // How long all ranks' calls must not change before a deadlock is proven, and how long it must last then.
  static constexpr std::int64_t calm_takes = 1500 * ns_per_ms, confirmation_takes = 750 * ns_per_ms;
  // How long a rank waits before it looks for its line of Python.
  static constexpr std::int64_t place_takes = 500 * ns_per_ms;
  // How long a rank that others wait for longer than --stall-abort goes on working before it is asked again.
  static constexpr std::int64_t work_lasts = 60'000 * ns_per_ms;
  // How long MPI has to end the job.
  static constexpr std::int64_t abort_takes = 5000 * ns_per_ms;

  static_assert(look + stack_takes < ranks_take && look + ranks_take < nodes_take);
  static_assert(nodes_take < question_lasts && nodes_take < report_takes);
  static_assert(place_takes + look + stack_takes < calm_takes && 2 * look < calm_takes &&
                2 * look < confirmation_takes);
  static_assert(look < silent && silent < longest_pause && look < longest_pause);
  static_assert(roll_call_takes < news_takes && news_takes + look_ending < mpirun_waits);
};

// A message between the watchdog threads of different ranks.
struct Alert {
  enum class Kind : std::uint32_t {
    here,    // I am alive
    ping,    // are you alive?
    ask,     // what do the ranks of your group do? others wait in `stalled`
    status,  // `status` of a rank of my group while others wait in `stalled`
    loss,    // the rank `lost` was lost
    probe,   // send the statuses of your group
    calm,    // `status` of a rank of my group, without a stall
    trace,   // the trace was requested (trace_requests.h)
  };
  Kind kind = Kind::here;
  std::int32_t from = -1;
  CallKey stalled;
  RankStatus status;
  LostRank lost;
};

// Thread safety: any thread may call this at any time. No call waits, except await_all().
class AlertChannel {
 public:
  // `ranks` are all ranks of the job. `control` must outlive this.
  // Collective: every rank of the job must call this in the same order.
  AlertChannel(ControlPlane& control, std::vector<int> ranks);

  void send(int to, Alert alert);
  std::optional<Alert> receive();  // returns an alert that has arrived; does not wait
  // Returns when each rank of `groups` has called this, or when `gives_up` returns true. `own` is the group
  // of this rank.
  void await_all(const std::vector<std::vector<int>>& groups, std::size_t own,
                 const std::function<bool()>& gives_up);

 private:
  MessageChannel alerts_, ends_;
};

struct WatchPost {
  int rank = 0;                          // rank in the job
  std::vector<std::vector<int>> groups;  // ranks that share a board; ascending, sorted by their lowest rank
  std::size_t group = 0;                 // group of this rank
  std::size_t slot = 0;                  // slot of this rank on the board
  std::unique_ptr<StatusBoard> board;
  std::unique_ptr<PeerWatch> peers;
  std::unique_ptr<AlertChannel> channel;  // null if there is only one group

  // Ranks of this group by slot, including this rank.
  const std::vector<int>& mates() const { return groups[group]; }
  Life life_of(std::size_t slot, const RankStatus& status, std::int64_t now_ns) const;
  // Of the ranks of this group, by slot.
  std::vector<RankStatus> statuses(std::int64_t now_ns) const;
  // True if this rank is the lowest running rank of its group, which acts for it.
  bool speaks_for_group(std::int64_t now_ns) const;

  // The ranks of a group that get alerts: the first two, because one of them may be unable to act.
  std::span<const int> contacts(std::size_t of_group) const;
  // True if this rank gets the statuses of all groups: it is a contact of one of the first two groups.
  bool collects() const;
  // True if this rank is the one that reports what concerns several groups: it collects, speaks for its
  // group, and has heard from no rank that comes before it. `heard` has the ranks that have sent alerts.
  bool leads(const std::set<int>& heard, std::int64_t now_ns) const;
  // Sends to the contacts of all other groups.
  void send_to_others(const Alert& alert) const;
};

// Creates the watch post of this rank among `ranks` of the job; node_by_rank has the node of each rank of the
// job. If the ranks of a node cannot share memory, each of them is a group of its own.
// Collective: every rank of the list must call this in the same order.
WatchPost make_watch_post(ControlPlane& control, std::vector<int> ranks, std::span<const int> node_by_rank);

}  // namespace farandole
