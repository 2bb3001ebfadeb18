// Tells when a run should save a checkpoint and end: after SIGTERM, SIGINT or SIGUSR1, or shortly before the
// wall time of its job ends.
// Thread safety: none; use from one thread at a time. Afterwards, any thread may call due() at any time.
#pragma once

#include <array>
#include <cstdint>

#include "farandole/base/process/launch_environment.h"
#include "farandole/base/process/signal_event.h"

namespace farandole {

class StopRequest {
 public:
  // From now on the signals do not end this process. A handler of the program is not replaced.
  StopRequest();

  // due() also becomes true `seconds` before the end of the job. SLURM_JOB_END_TIME (Unix time) has the end,
  // or else Slurm's controller is asked. Returns false if the end is not known; then this call has no effect.
  bool before_job_ends(double seconds, const Environment& environment);

  bool due() const;

 private:
  std::array<SignalEvent, 3> signals_;
  std::int64_t stop_at_ns_;  // Real time.
};

}  // namespace farandole
