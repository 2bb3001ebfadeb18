// The text of stall reports, composed from the statuses of the ranks.
// Thread safety: any thread may call this at any time.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/text/phrases.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/comm/watch/thread_probe.h"

namespace farandole {

std::string describe_call(const CallStatus& call);  // "allreduce #17 'bucket 0'"

// The activity of the rank as a clause: "is in allreduce #17 'bucket 0' for 61 s" or "is stuck in data
// loading ('load' for 61 s)".
std::string describe_activity(const RankStatus& status);
// The call in flight in which the rank has waited longest; nullptr if there is none.
const CallStatus* waiting_in(const RankStatus& status);

// The report of one rank about itself: one line, the contents of the collective, and the stack.
struct OwnReport {
  RankStatus status;
  std::string host;
  std::optional<CallKey> missed_in;  // the collective in which others wait for this rank
  std::optional<CollectiveRegistry::Meaning> meaning;
  std::optional<ThreadSnapshot> thread;
};
std::string own_report(const OwnReport& report);

// The summary for the whole job. statuses[r] is the status of rank r; its life is `unknown`
// if nothing was received.
struct StallSummary {
  CallStatus call;           // where most ranks wait, and for how long the first of them has waited
  std::vector<int> waiting;  // ascending
  std::vector<int> missing;
  std::string text;
};
// std::nullopt if no rank is in a collective. `explain` returns the contents of the collective
// if they are known.
std::optional<StallSummary> summarize_stall(
    std::span<const RankStatus> statuses, const std::vector<std::string>& hosts,
    const std::function<std::optional<CollectiveRegistry::Meaning>(const CallKey&)>& explain);

}  // namespace farandole
