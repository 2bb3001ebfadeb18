#!/usr/bin/env bash
# Each process of a job is killed (SIGKILL) or stopped (SIGSTOP) in turn: launcher, mpirun, supervisor and rank; a supervisor is also
# killed together with the launcher. Nothing is lost, no process and no shared memory is left behind, the doctor names the cause, and
# the result is bit-wise equal to that of an undisturbed run. With a number N, there are N turns of each instead of 1.
source "$(dirname "$0")/../common.sh"
need_h5py
turns=${1:-1}
RANDOM=$((${FARANDOLE_TEST_SEED:-1} % 32768))
options=(--model gpt --data "$text" --layers 1 --width 32 --heads 2 --context 32 --batch-size 16 --dropout 0.1
         --optimizer adamw --lr 0.001 --epochs 1000000 --log-steps 1 --recorder-mb 1)
export FARANDOLE_STALL_SECONDS=1
launcher= pid=
clean_up() {  # Ranks whose launcher has been killed end by themselves.
  [[ -z $pid ]] || kill -CONT "$pid" 2>/dev/null
  [[ -z $launcher ]] || kill -9 "$launcher" 2>/dev/null
  rm -rf "$work"
}
trap clean_up EXIT

start() {
  "$bin/farandole" run -n 2 --max-restarts 1000000 -- "$bin/farandole" train "${options[@]}" --run-dir killed --checkpoint-every 2steps \
    >>out 2>>err &
  launcher=$!
}
# until_true SECONDS WHAT COMMAND…: fails with WHAT if the command is not true in four times this time, on a busy machine
until_true() {
  local deadline=$((SECONDS + 4 * $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < deadline)) || fail "$what; the doctor: $("$bin/farandole" doctor killed 2>&1)"
    read -rt 0.05 <> <(:) || true
  done
}
: >out
starts() { grep -cE 'steps in [0-9]+ epochs' out; }
steps() { grep -c . killed/metrics.jsonl; }
started_after() { (($(starts) > $1)); }
goes_on_after() { (($(steps) > $1)); }
is_gone() { ! kill -0 "$1" 2>/dev/null; }
says() {  # PATTERN [RUN]
  local report  # Its lines are wrapped, and the exit code tells scripts what it has found.
  report=$("$bin/farandole" doctor "${2:-killed}" 2>&1 | tr '\n' ' ') || true
  grep -qiE "$1" <<<"$report"
}

rank_of() { tr '\0' '\n' 2>/dev/null <"/proc/$1/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'; }
# processes: sets mpirun, supervisors and ranks, both by rank
processes() {
  mpirun=$(pgrep -P "$launcher" | head -n 1)
  mapfile -t supervisors < <(pgrep -P "$mpirun")
  ranks=()
  for supervisor in "${supervisors[@]}"; do ranks+=("$(pgrep -P "$supervisor")"); done
  ((${#supervisors[@]} == 2)) && [[ ${ranks[0]} && ${ranks[1]} ]] || return
  # mpirun does not always start rank 0 first.
  [[ $(rank_of "${ranks[0]}") == 0 ]] || supervisors=("${supervisors[1]}" "${supervisors[0]}") ranks=("${ranks[1]}" "${ranks[0]}")
  [[ $(rank_of "${ranks[0]}")$(rank_of "${ranks[1]}") == 01 ]]
}

no_segments() { ! compgen -G "/dev/shm/vader_segment.*.$1.*" >/dev/null; }
start
until_true 60 "the job does not start" started_after 0
for ((turn = 0; turn < turns; turn++)); do
  for victim in rank supervisor mpirun launcher both; do
    until_true 20 "the processes of the job" processes
    which=$((RANDOM % 2))
    # What the doctor calls it, and the cause that it names after the kill.
    who="the supervisor of rank $which" cause="the launcher was killed"
    case $victim in
      rank) pid=${ranks[which]} cause="rank $which on [^ ]* was killed by signal 9" ;;
      supervisor) pid=${supervisors[which]} cause="rank $which on [^ ]* was killed together with its supervisor" ;;
      mpirun) pid=$mpirun who=mpirun cause="the run ended because mpirun was killed by signal 9" ;;
      launcher) pid=$launcher who="the launcher" ;;
      both) pid=${supervisors[which]} ;;  # The launcher is killed with it, so nobody is left who knows the rank's files.
    esac
    # A start is given the time for a step, because a job that makes no progress three times is not started again.
    until_true 60 "no step before the $victim is stopped" goes_on_after "$(steps)"
    kill -STOP "$pid"
    if [[ $victim == rank ]]; then
      until_true 20 "the doctor does not see that rank $which is stopped" says "the run hangs:.*process $pid is stopped"
    else
      until_true 60 "training waits for a stopped $victim" goes_on_after "$(($(steps) + 3))"
      until_true 20 "the doctor does not see that $who is stopped" says "run is still running.*; $who \(process $pid\) is stopped \(state T\)"
    fi
    kill -CONT "$pid"
    until_true 60 "no step after the $victim was stopped" goes_on_after "$(($(steps) + 1))"
    before=$(starts)
    job=$(tr '\0' '\n' <"/proc/${ranks[0]}/environ" | sed -n 's/^OMPI_MCA_ess_base_jobid=//p')
    if [[ $victim == both ]]; then kill -9 "$launcher" "$pid"; else kill -9 "$pid"; fi
    if [[ $victim == launcher || $victim == both ]]; then
      wait "$launcher" 2>/dev/null
      for process in "$mpirun" "${supervisors[@]}" "${ranks[@]}"; do
        until_true 30 "process $process is left behind" is_gone "$process"
      done
      says "$cause" || fail "the doctor on a killed launcher: $("$bin/farandole" doctor killed)"
      start
    fi
    until_true 90 "no start after the $victim was killed" started_after "$before"
    earlier=$(printf '%s\n' killed/starts/* | tail -n 1)
    says "$cause" "$earlier" || fail "the doctor on a start whose $victim was killed: $("$bin/farandole" doctor "$earlier")"
    for process in "${ranks[@]}"; do until_true 20 "rank $process is left behind" is_gone "$process"; done
    [[ -z $job ]] || until_true 10 "shared memory of Open MPI is left behind" no_segments "$(printf %x "$job")"
  done
done
until_true 60 "no step after the last start" goes_on_after "$(steps)"
kill -TERM "$launcher"
wait "$launcher"
[[ $? == 75 ]] || fail "the last start did not end with 75"
"$bin/farandole" doctor killed >out 2>&1
grep -qE "run stopped on request|was preempted" out || fail "the doctor at the end"
last=$(ls killed/checkpoints | tail -n 1)
steps=${last#step-}
train 2 "${options[@]}" --run-dir whole --steps "$((10#${steps%.h5}))" --checkpoint-every 1000000steps || fail "the undisturbed run"
equal_arrays "whole/checkpoints/$last" "killed/checkpoints/$last" || fail "the results differ"
leftovers=$(ls -A killed/checkpoints | grep -v '^step-[0-9]*\.h5$')
[[ -z $leftovers ]] || fail "left behind: $leftovers"
echo "$((5 * turns)) kills and as many stops until $last"
