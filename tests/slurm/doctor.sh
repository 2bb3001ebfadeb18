#!/usr/bin/env bash
# The doctor on Slurm jobs that reached their time limit, were preempted, requeued or cancelled, lacked memory,
# or lost a host.
hosts=2 cpus=8 needs=doomed_program
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp

# Jobs of `high` preempt those of `low`, which start again, and those of `cheap`, which do not.
# `main` is never preempted.
cat >>"$SLURM_SANDBOX_DIR/slurm.conf" <<'CONF'
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES PreemptMode=OFF
PartitionName=low Nodes=ALL PreemptMode=REQUEUE
PartitionName=cheap Nodes=ALL PreemptMode=CANCEL
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
CONF
sed -i '0,/^PartitionName=main .*OverSubscribe/{/^PartitionName=main .*OverSubscribe/d}
s/^KillWait=.*/KillWait=30/' "$SLURM_SANDBOX_DIR/slurm.conf"
scontrol reconfigure || fail "the sandbox takes no partitions"

# submit RUN SCENARIO CULPRIT SBATCH-OPTION...: starts a job with one rank on each host, logged in RUN, and returns
# when it runs. It submits again if Open MPI crashed at its start: version 4.1 sometimes does if ranks of several
# hosts start under load.
submit() {
  local run=$work/$1
  printf '#!/bin/bash\nexport FARANDOLE_RUN_DIR=%s\nexec farandole run --log-dir %s/logs -- doomed_program %s %s %s\n' \
    "$run" "$run" "$run" "$2" "$3" >job.sbatch
  for _ in 1 2 3; do
    rm -rf "$run"
    mkdir -p "$run"
    job=$(sbatch --parsable --output="$work/out.%j" -N2 --ntasks-per-node=1 "${@:4}" job.sbatch) || fail "sbatch $*"
    until_true 60 runs_or_failed "$1"
    runs "$1" && return
  done
  fail "the job $1 does not start: $(tail -n 5 "out.$job")"
}
runs() { [[ -s $1/pid.0 && -s $1/pid.1 ]]; }
runs_or_failed() { runs "$1" || [[ $(state) == FAILED ]]; }
is_over() { [[ ! $(state) =~ RUNNING|COMPLETING ]]; }
launcher_is_over() { grep -q '"end_ns": [1-9]' "$1/launch/job.json"; }
# verdict RUN CAUSE PATTERN: also checks a copy, for which Slurm cannot be asked.
verdict() {
  local copy=$work/copies/$1 text cause
  mkdir -p copies
  cp -r "$1" "$copy"
  text=$("$bin/farandole-doctor" "$1" | sed '/^$/,$d' | tr '\n' ' ')
  grep -qE -- "$3" <<<"$text" || fail "the verdict of $1 lacks '$3': $text
$("$bin/farandole-doctor" "$1")"
  for run in "$1" "$copy"; do
    cause=$(env -u SLURM_CONF PATH=/proc/nonexistent "$bin/farandole-doctor" "$run" --format json | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["cause"])')
    [[ $cause == "$2" ]] || fail "the cause of $run is $cause, not $2: $(<"$run/launch/job.json")"
  done
}

# Slurm checks limits twice a minute, so these two jobs run in the meantime. One gets a warning, saves and ends before
# its limit; the other gets no warning.
submit told forever 0 --time=1 --signal=USR1@55 --no-requeue
told=$job
submit limit forever 0 --time=1 --no-requeue
limit=$job
scontrol update JobId="$limit" EndTime=now+2 || fail "no new limit"

# Five of a host's eight CPUs are free only if a job with four CPUs is preempted, whether or not the two jobs above have
# ended. The preempted job does not start again while the other runs.
high() { rival=$(sbatch --parsable -p high -N2 --ntasks-per-node=5 --output=/dev/null --wrap 'exec sleep 300') || fail "no job of high priority"; }
submit preempted forever 0 -p low --cpus-per-task=4 --requeue
high
until_true 60 launcher_is_over preempted
until_true 60 is_over
verdict preempted preempted '^The run was preempted \(slurmstepd reported DUE TO PREEMPTION\) at [0-9:]+ UTC; it has no checkpoint'
"$bin/farandole-doctor" preempted | grep -q "Slurm has requeued job $job and will start it again" || fail "that it starts again is not said"
scancel "$job" "$rival"

submit cheap forever 0 -p cheap --cpus-per-task=4
high
until_true 60 launcher_is_over cheap
until_true 60 is_over
verdict cheap preempted '^The run was preempted \((Slurm reports PREEMPTED for job [0-9]+|slurmstepd reported DUE TO PREEMPTION)\)'
scancel "$rival"

submit requeued forever 0 --requeue
scontrol requeuehold "$job"
until_true 60 launcher_is_over requeued
verdict requeued requeued '^The run was stopped because its Slurm job was requeued \(slurmstepd reported DUE TO JOB REQUEUE\) at '
scancel "$job"

submit cancelled hang 1 --no-requeue
scancel "$job"
until_true 60 is_over
verdict cancelled cancelled '^The run was cancelled \((Slurm reports CANCELLED for job [0-9]+|slurmstepd reported CANCELLED AT)\)'

# Processes that slurmd starts are in its control group.
group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory:\(.*\)/\1/p' /proc/self/cgroup)
limited=${group%/*}/farandole-test-$$
join() { "$sandbox" exec node2 sh -c "for pid in \$(pgrep -x slurmd); do echo \$pid >$1/cgroup.procs; done"; }
if mkdir "$limited" 2>/dev/null && echo $((256 << 20)) >"$limited/memory.limit_in_bytes" && join "$limited"; then
  submit memory memory 1 --no-requeue
  until_true 60 is_over
  verdict memory 'out of memory' '^Rank 1 on node2 was killed by signal 9 \(out of memory: .* in step 3, in backward'
  join "$group"
else
  echo "left out: an out-of-memory kill, no control group can be made here"
fi
for ((i = 0; i < 50; i++)); do rmdir "$limited" 2>/dev/null || [[ ! -e $limited ]] && break; sleep 0.2; done # slurmstepd ends behind its job

job=$told
until_true 60 launcher_is_over told
until_true 60 is_over
verdict told preempted '^The run stopped on request \([0-9.]+ s before the time limit of its Slurm job\) at [0-9:]+ UTC; it has no checkpoint'
job=$limit
until_true 60 is_over
verdict limit 'time limit' '^The run was ended by its time limit \((Slurm reports TIMEOUT for job [0-9]+|slurmstepd reported DUE TO TIME LIMIT)\)'

# A host loses power.
submit lost forever 0 --no-requeue
"$sandbox" kill node2
until_true 90 is_over
verdict lost 'host lost' '^Rank 1 was lost with host node2: there is no record of its end'
"$sandbox" start node2

# A host's slurmd ends while its rank continues to run.
if [[ -n ${FARANDOLE_TEST_SEED:-} ]]; then
  until_true 60 eval '[[ $(sinfo -h -N -p main -o %T | grep -cx idle) == 2 ]]'
  submit deserted forever 0 --no-requeue
  "$sandbox" exec node2 pkill -KILL -x slurmd
  until_true 90 is_over
  verdict deserted 'host lost' '^Rank 1 was lost with host node2: there is no record of its end \((slurmstepd reported DUE TO NODE FAILURE|Slurm reports NODE_FAIL)'
fi
exit $((failures > 0))
