// What a stall report says, from what ranks say about themselves. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/phrases.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/comm/watch/thread_probe.h"

namespace farandole {

std::string describe_call(const CallStatus& call);  // "allreduce #17 'bucket 0'"

// What the rank does, as a clause: "is in allreduce #17 'bucket 0' for 61 s", "is stuck in data loading
// ('load' for 61 s)". nullptr: no collective counts.
std::string describe_activity(const RankStatus& status);
// The call in flight that the rank waits in, if it has one: the longest.
const CallStatus* waiting_in(const RankStatus& status);

// The report of one rank about itself: a line, what the collective stands for, the stack.
struct OwnReport {
  RankStatus status;
  std::string host;
  std::optional<CallKey> missed_in;  // others wait for this rank here
  std::optional<CollectiveRegistry::Meaning> meaning;
  std::optional<ThreadSnapshot> thread;
};
std::string own_report(const OwnReport& report);

// The summary for the whole job. statuses[r] is rank r's; life unknown, where nothing was heard of it.
struct StallSummary {
  CallStatus call;           // where the most ranks wait, and for how long the first of them
  std::vector<int> waiting;  // ascending
  std::vector<int> missing;
  std::string text;
};
// Nothing where no rank is in a collective. `explain` says what the collective stands for, where this is
// known.
std::optional<StallSummary> summarize_stall(
    std::span<const RankStatus> statuses, const std::vector<std::string>& hosts,
    const std::function<std::optional<CollectiveRegistry::Meaning>(const CallKey&)>& explain);

}  // namespace farandole
