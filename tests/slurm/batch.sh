# Sourced after sandbox.sh: jobs that a test waits for.

# batch SECONDS SBATCH-ARGUMENTS...: submits a job and waits for its end, up to four times as long because the machine may be busy;
# the output is in $work/out, the exit code in $code.
batch() {
  local seconds=$1 job state=
  shift
  last="sbatch $*"
  : >out
  job=$(sbatch --parsable --output="$work/out" "$@") || { fail "sbatch $*"; code=-1; return; }
  for ((i = 0; i < seconds * 20; i++)); do
    state=$(scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p')
    [[ $state != PENDING && $state != RUNNING && $state != COMPLETING ]] && break
    sleep 0.2
  done
  code=$(scontrol show job "$job" | sed -n 's/.*ExitCode=\([0-9]*\):.*/\1/p')
  [[ $state == COMPLETED || $state == FAILED ]] || { fail "job is $state after $seconds s: $last"; scancel "$job"; }
  cp out err
}
script() { printf '#!/bin/bash\n%s\n' "$1" >job.sbatch; }
is() { [[ $code == "$1" ]] || fail "exit code $code, not $1: $last
$(tail -n 20 out)"; }
