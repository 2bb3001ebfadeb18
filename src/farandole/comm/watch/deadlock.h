// Decides whether ranks wait for each other forever, and says why. Pure functions.
// Thread safety: any thread may call this at any time.
//
// A collective cannot end before every rank of its communicator has begun it. A rank cannot begin it if it
// has left the job, or if each of its threads that could begin it waits in a call that cannot end. The calls
// that cannot end are therefore the largest set of calls in which each call lacks such a rank, or is one in
// which ranks wait in different operations. The threads that could begin a call are the one that made the
// communicator, and the one that made its last call. A thread that works for another one, as the thread that
// reduces gradients does for the training thread, begins what the other one tells it to. What is not known
// counts as possible: a rank that is stopped, or a communicator that a rank may have and does not show, never
// helps to prove a deadlock.
//
// What is found stays true, because none of these calls can end first. So the statuses may be of different
// moments. But each must show a state in which the rank really was: RankStatus::calm_ns ensures this.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "farandole/comm/watch/rank_status.h"

namespace farandole {

// A thread of this rank waits in this call, which cannot end.
struct HopelessWait {
  int rank = 0;
  CallStatus call;
};

// statuses[r] is the status of rank r; its life is `unknown` if nothing is known. Sorted by rank. Empty if no
// deadlock is proven.
std::vector<HopelessWait> find_deadlock(std::span<const RankStatus> statuses);

// One sentence: which ranks wait in what, why this is probably so, and what to do.
std::string describe_deadlock(std::span<const HopelessWait> waits, std::span<const RankStatus> statuses);

}  // namespace farandole
