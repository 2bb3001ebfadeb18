#!/usr/bin/env bash
# Jobs that are killed, crash, hang, refuse to start or are stopped: the doctor names rank, place and cause.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# A scenario is a function that runs in its own folder and shell, because most of the time is spent waiting for mpirun.
killed() {
  job 137 3 kill 1
  diagnosed
  verdict "^Rank 1 on $host was killed by signal 9 \(Killed; the sender is unknown.* in step 3, in backward, at [0-9:]+ UTC; "
  verdict "ranks 0, 2 waited in allreduce #3 'bucket 0' for it.*((was|were) stopped by the launcher [0-9.]+ s later|ended( [0-9.]+ s later)? with exit code 70( and by signal 15)?|ended( [0-9.]+ s later)? by signal 15.*)\. $"
  local -A values=([cause]=killed [rank]=1 [host]=$host [step]=3 [phase]=backward [exit_code]=137
    [collective]="{'text': \"allreduce #3 'bucket 0'\", 'waiting': [0, 2], 'missing': [1]}")
  for name in "${!values[@]}"; do field "$name" "${values[$name]}"; done
  says out "rank 0 reported: rank 1 .* was killed by SIGKILL|rank 2 reported"
  says out '^ +1 +[^ ]+ +killed: signal 9 \(Killed\) +[0-9:]+ +3 +in backward'
}

# ended CODE RANKS SCENARIO RANK CAUSE VERDICT: a job with logs, and what the doctor says of it.
ended() {
  job "${@:1:4}" --log-dir run/logs
  diagnosed
  verdict "$6"
  field cause "$5"
}
crashed() {
  ended 139 2 crash 0 crashed '^Rank 0 on .* crashed with signal 11 \(Segmentation fault\) in step 3, in backward, at .*; rank 1 waited in allreduce'
  says out 'read its whole output: run/logs/rank-0000.log'
}
threw() {
  ended 134 2 throw 1 'uncaught exception' '^Rank 1 on .* ended by an uncaught exception \(std::runtime_error: the batch has no samples\) in step 3, '
}
found_no_space() {
  ended 1 2 disk 1 failed '^Rank 1 on .* ended with exit code 1 .*in step 3, in backward'
  says out 'rank 1 reported that no space is left on a device'
}
left() {
  job 70 3 leave 1
  diagnosed
  verdict '^Rank 1 on .* ended with exit code 0 without MPI_Finalize in step 3, in backward, at .* UTC; ranks 0, 2 waited in allreduce #3'
  field cause failed
  field rank 1
  grep -q '^farandole run: rank 1 (host .*) ended with exit code 0' job.err || fail "the launcher's message: $(<job.err)"
}
not_started() {
  OMPI_MCA_orte_default_hostfile=/no/hosts job 1 2 nothing 0 --run-dir run
  diagnosed
  verdict '^Mpirun did not start the ranks: Open RTE was unable to open the hostfile: /no/hosts Check to'
  says out 'mpirun said: Open RTE was unable to open the hostfile'
  says out '^  correct what mpirun names and start the run again'
}
refused() { ended 64 2 refuse 0 refused "^The run was refused with exit code 64: farandole train: --lr is 'x'; give a number"; }

# A refused job does not change the run directory, unless logs were requested.
refused_without_a_trace() {
  job 64 2 refuse 0
  [[ -z $(ls run) ]] || fail "a refused job left: $(ls run)"
}

ended_in_order() {
  ended 0 2 versions 0 done '^The run ended normally'
  field exit_code 0
  says out 'mpi differs between ranks: Open MPI v4.1.0 on rank 0; Open MPI v4.1.1 on rank 1'
}

# A stall that ends the job.
stalled() {
  FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=4 job 70 3 hang 2
  diagnosed
  verdict "^Ranks 0, 1 waited [0-9.]+ s in allreduce #3 'bucket 0' for rank 2 on $host, which was in step 3, in backward for [0-9.]+ s; therefore the limit for stalls .FARANDOLE_STALL_ABORT, 1800 s by default. ended the job"
  field cause stalled
  field rank 2
  says out "reported: stall: ranks 0, 1 have waited"
}

# A job that still runs.
start() {  # SCENARIO RANK: in the background
  mkdir run
  FARANDOLE_RUN_DIR=$work/run setsid timeout 300 "$bin/farandole" run -n 2 -- "$bin/doomed_program" run "$@" >job.out 2>job.err &
  launcher=$!
  until [[ -s run/pid.0 && -s run/pid.1 ]] || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
}
running() {
  local step=0
  start forever 0
  until ((step > 3)); do diagnosed; step=$(python3 -c 'import json; print(max(r["step"] or 0 for r in json.load(open("out.json"))["ranks"]))'); done
  verdict '^The run is still running, at step [0-9]+; its newest event is [0-9.]+ s old'
  field cause running
  touch run/stop
  wait $launcher || fail "the job forever: $?"
}

# A rank that is stopped: the run's own report is there, and the doctor sees the process.
stopped() {
  FARANDOLE_STALL_SECONDS=1 start stop 1
  until grep -q 'stall: rank 0 has waited' job.err || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
  diagnosed
  verdict "^The run hangs: rank 0 has waited [0-9.]+ s in allreduce #3 'bucket 0' for rank 1 on $host, which is in step 3, in backward for [0-9.]+ s; its process $(<run/pid.1) is stopped \\(state T\\)\\. $"
  field cause stalled
  field rank 1
  says out "continue it: kill -CONT $(<run/pid.1)"
  kill -CONT "$(<run/pid.1)"
  wait $launcher || fail "the job stop: $?"
  diagnosed
  field cause done
}

# A job stopped by SIGUSR1 after a checkpoint, by SIGTERM, and together with its launcher.
preempted() {
  start forever 0
  pkill -USR1 -s $launcher -x farandole-run
  wait $launcher
  local code=$?
  [[ $code == 75 ]] || fail "USR1: $code"
  diagnosed
  verdict '^The run stopped on request \(signal 10 \(User defined signal 1\)\) at .* UTC; it has no checkpoint'
  field cause preempted
}

interrupted() {
  start forever 0
  pkill -TERM -s $launcher -x farandole-run
  wait $launcher
  diagnosed
  verdict '^The run was asked to stop \(signal 15 \(Terminated\)\) at '
  field cause interrupted
}

orphaned() {
  start hang 1
  until python3 - <<'PYTHON' 2>/dev/null; do diagnosed; done
import json
waiting, hanging = json.load(open("out.json"))["ranks"]
assert "allreduce #3" in waiting["doing"] and hanging["doing"] == "in backward" and hanging["step"] == 3
PYTHON
  verdict '^The run (is still running|hangs)'
  { pkill -KILL -s $launcher -x farandole-run; wait $launcher; } 2>/dev/null
  for r in 0 1; do while [[ -e /proc/$(<run/pid.$r) ]]; do sleep 0.05; done; done
  rm -rf run/launch # which a supervisor may have been quick enough to write
  diagnosed
  verdict "^Why the run ended is unknown: no launcher has left a record.*; according to the flight recorders, rank 0 waited in allreduce #3 'bucket 0' for rank 1 on $host, last seen in step 3, in backward"
  field cause unknown
  field rank 1
}

# A rank killed by the kernel for lack of memory, if a control group with a limit can be created here.
out_of_memory() {
  local group
  group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory:\(.*\)/\1/p' /proc/self/cgroup)
  group=${group%/*}/farandole-test-$$
  if mkdir "$group" 2>/dev/null && echo $((256 << 20)) >"$group/memory.limit_in_bytes"; then
    (echo "$BASHPID" >"$group/cgroup.procs" && job 137 2 memory 1; exit $failures) || failures=$((failures + 1))
    diagnosed
    verdict "^Rank 1 on $host was killed by signal 9 \(out of memory: .* in step 3, in backward"
    field cause 'out of memory'
    says out 'rank 1 used at most [0-9]+ MiB of memory, the limit of its control group is 256 MiB'
  else
    echo "left out: an out-of-memory kill, no control group can be made here"
  fi
  rmdir "$group" 2>/dev/null
}

together=4
scenarios=(stalled stopped out_of_memory killed left not_started orphaned crashed threw found_no_space running preempted interrupted refused
  refused_without_a_trace ended_in_order)
for scenario in "${scenarios[@]}"; do
  while (($(jobs -rp | wc -l) >= together)); do wait -n; done
  (
    trap - EXIT
    work=$work/$scenario
    mkdir "$work" && cd "$work" || exit 1
    "$scenario"
    ((failures > 0)) || touch ../"passed.$scenario"
  ) &
done
wait
for scenario in "${scenarios[@]}"; do [[ -e passed.$scenario ]] || fail "$scenario, see above"; done
exit $((failures > 0))
