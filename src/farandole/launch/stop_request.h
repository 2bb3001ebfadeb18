// Tells when a run should save a checkpoint and end: after SIGTERM, SIGINT or SIGUSR1, or shortly before the
// wall time of its job ends.
// Thread safety: none; use from one thread at a time. Afterwards, any thread may call due() at any time.
#pragma once

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/launch_environment.h"

namespace farandole {

class StopRequest {
 public:
  // From now on the signals do not end this process. Create this object before any thread starts, so that all
  // threads block them.
  StopRequest();

  // due() also becomes true `seconds` before the end of the job. SLURM_JOB_END_TIME (Unix time) has the end,
  // or else Slurm's controller is asked. Returns false if the end is not known; then this call has no effect.
  bool before_job_ends(double seconds, const Environment& environment);

  bool due() const;

 private:
  OwnedDescriptor signals_;
  std::int64_t stop_at_ns_;  // Real time.
};

}  // namespace farandole
