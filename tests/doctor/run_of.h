// The evidence of a training that began an hour before noon and ended a second after it, for tests.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>

#include "farandole/doctor/run_evidence.h"

namespace farandole::evidence {

constexpr std::int64_t second = 1'000'000'000, noon = 1'800'000'000 * second;

// The first half of the ranks is on node1, the second on node2.
inline RunEvidence run_of(int ranks) {
  RunEvidence run;
  run.folder = "run";
  run.kind = ProgramKind::train;
  run.now_ns = noon + 3600 * second;
  run.job.emplace();
  run.job->ranks = ranks;
  run.job->start_ns = noon - 3600 * second;
  run.job->end_ns = noon + second;
  for (int r = 0; r < ranks; ++r) {
    run.ranks.emplace_back();
    run.ranks.back().rank = r;
    run.ranks.back().host = r < ranks / 2 ? "node1" : "node2";
  }
  return run;
}

}  // namespace farandole::evidence
