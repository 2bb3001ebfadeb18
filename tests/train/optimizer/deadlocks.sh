#!/usr/bin/env bash
# Programs whose ranks wait for each other end with 64 and one line, with and without farandole run.
source "$(dirname "$0")/../../trainer/common.sh"
remedy="give all ranks the same number of batches with DistributedSampler, or use Join"
# deadlocks MISTAKE SENTENCE
starter="$bin/farandole run -n 2 --"
deadlocks() {
  timeout -k 5 60 $starter "$bin/deadlocking" "$1" >out 2>err
  local code=$?
  # Open MPI 4.1 sometimes hangs in its own end, when no rank is left; farandole run then ends it.
  [[ $starter != mpirun* || $code -lt 124 || -n $(pgrep -f "^$bin/deadlocking") ]] || code=64
  [[ $code == 64 ]] || fail "$1, $starter: exit code $code: $(<err)"
  [[ $(grep -cE "^(\[.*\] )?farandole: \[rank 0\] deadlock: $2\$" err) == 1 ]] || fail "$1, $starter: $(<err)"
}
ended="rank 0 waits in allreduce #[0-9]+ 'bucket 0' of the gradients of step 13, rank 1 has ended its (training|session) after 12 steps.*: rank 1 has made 1 step fewer; $remedy"
deadlocks compressed "$ended"
deadlocks validation "rank 0 waits in allreduce #[0-9]+ after 12 steps, rank 1 waits in allreduce #[0-9]+ 'bucket 0' of the gradients of step 13: rank 0 calls it alone; .*$remedy"
# With a recorder, the ranks also meet at the end.
FARANDOLE_RUN_DIR=$PWD/run deadlocks batches "$ended"
timeout 110 "$bin/farandole" run -n 2 -- "$bin/deadlocking" joined >out 2>err || fail "joined: $(<err)"
starter="mpirun -q -n 2"
deadlocks batches "$ended"
exit 0
