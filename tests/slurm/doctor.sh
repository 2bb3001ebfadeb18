#!/usr/bin/env bash
# The doctor on Slurm jobs that reached their time limit, were cancelled, or lost a host.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
hosts=2
source "$here/sandbox.sh"
[[ -x $bin/doomed_program ]] || skip "doomed_program is not built"
unset OMP_NUM_THREADS
export PATH=$bin:$PATH OMPI_MCA_btl=self,tcp # see nodes.sh
cd "$work" || exit 1

# submit RUN SCENARIO CULPRIT SBATCH-OPTION...: a job of a rank on each host, logged in RUN.
submit() {
  local run=$work/$1
  mkdir -p "$run"
  printf '#!/bin/bash\nexport FARANDOLE_RUN_DIR=%s\nexec farandole run --log-dir %s/logs -- doomed_program %s %s %s\n' \
    "$run" "$run" "$run" "$2" "$3" >job.sbatch
  job=$(sbatch --parsable --output="$work/out.%j" -N2 --ntasks-per-node=1 --no-requeue "${@:4}" job.sbatch) || fail "sbatch $*"
}
state() { scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
# until_true SECONDS COMMAND...
until_true() {
  for ((i = 0; i < $1 * 5; i++)); do "${@:2}" && return; sleep 0.2; done
  fail "in vain for $1 s: ${*:2}; job is $(state): $(tail -n 5 "out.$job")"
}
runs() { [[ -s $1/pid.0 && -s $1/pid.1 ]]; }
is_over() { [[ ! $(state) =~ PENDING|RUNNING|COMPLETING ]]; }
# verdict RUN PATTERN
verdict() {
  local text
  text=$("$bin/farandole-doctor" "$1" | sed '/^$/,$d' | tr '\n' ' ')
  grep -qE -- "$2" <<<"$text" || fail "the verdict of $1 lacks '$2': $text
$("$bin/farandole-doctor" "$1")"
}

# The ranks save and end by themselves, told before the limit.
submit told forever 0 --time=1 --signal=USR1@55
until_true 60 is_over
verdict told '^The run stopped as it was asked to \([0-9.]+ s before the time limit of its Slurm job\) at [0-9:]+ UTC; it has left no checkpoint'

submit cancelled hang 1
until_true 60 runs cancelled
scancel "$job"
until_true 60 is_over
verdict cancelled '^The run was cancelled \((Slurm says CANCELLED of job [0-9]+|slurmstepd said CANCELLED AT)\)'

# A host without power.
submit lost forever 0
until_true 60 runs lost
"$sandbox" kill node2
until_true 90 is_over
verdict lost '^Rank 1 went away with host node2: nothing was heard of its end'
"$sandbox" start node2

exit $((failures > 0))
