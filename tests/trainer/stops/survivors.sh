#!/usr/bin/env bash
# A rank is killed while the others wait for it, and no time-out of theirs is near: they end nevertheless, and the job starts again.
# They wait in a collective of a training whose stall limit is hours, or in a program that waits for ever. If that ignores SIGTERM,
# mpirun kills it after two pauses of a second. Arguments: turns of each (1), and the seconds from a kill to the end of the last
# survivor above which the test fails (no bound), for those that do not ignore SIGTERM.
source "$(dirname "$0")/../common.sh"
turns=${1:-1} bound=${2:-inf}
export FARANDOLE_STALL_SECONDS=36000 FARANDOLE_STALL_ABORT=36000
options=(--model mlp --data synthetic --width 16 --epochs 1000000 --log-steps 1 --recorder-mb 1)
launcher=
trap 'kill -9 $launcher 2>/dev/null; rm -rf "$work"' EXIT  # The ranks end after their launcher.

cat >waiting <<'PROGRAM'
#!/bin/bash
[[ ! -e killed ]] || exit 0
[[ $1 != deaf ]] || trap '' TERM
mkfifo "fifo.$$"
exec <>"fifo.$$"
while :; do read -r; done
PROGRAM
chmod +x waiting
# start PROGRAM…: on three ranks, and waits for their process ids
start() {
  rm -f pid.*
  "$bin/farandole" run -n 3 --oversubscribe --max-restarts 1 --run-dir run -- bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' bash "$@" >out 2>err &
  launcher=$!
  for rank in 0 1 2; do await "it does not start: $*" test -s pid.$rank; done
  pids=("$(<pid.0)" "$(<pid.1)" "$(<pid.2)")
}
# They wait in a collective, or at the end of an update, where only the ranks of a node meet.
others_wait() { "$bin/farandole" doctor run 2>/dev/null | tr '\n' ' ' |
  grep -qE "ranks 0, 2 have waited .* for rank 1 |(in wait 'end of the update'.*){2}"; }
all_read() { for pid in "${pids[@]}"; do [[ -p fifo.$pid && $(readlink "/proc/$pid/fd/0") == */fifo.$pid ]] || return 1; done; }

is_over() { ! kill -0 "$1" 2>/dev/null || grep -qs '^State:.Z' "/proc/$1/status"; }  # Nobody may have waited for it yet.

end_of_survivors() {  # KIND: kills rank 1, and measures how long the others live
  local begin=$EPOCHREALTIME
  kill -9 "${pids[1]}"
  for pid in "${pids[0]}" "${pids[2]}"; do until is_over "$pid"; do read -rt 0.005 <> <(:); done; done
  echo "$begin $EPOCHREALTIME" >>"lives.$1"
}

for ((turn = 0; turn < turns; turn++)); do
  rm -rf run
  start "$bin/farandole" train "${options[@]}" --run-dir run
  await "the training ended early" more_lines run/metrics.jsonl 3
  kill -STOP "${pids[1]}"
  await "the training ended early" others_wait
  end_of_survivors training
  await "the training does not start again" more_lines run/metrics.jsonl $(($(grep -c . run/metrics.jsonl) + 1))
  kill -TERM $launcher
  wait $launcher
  [[ $? == 75 ]] || fail "the end of the training"
  for kind in waiting deaf; do
    rm -rf run killed
    start ./waiting $kind
    await "the program ended early" all_read
    touch killed
    end_of_survivors $kind
    wait $launcher || fail "the program does not start again: $?"
    grep -q 'restart 1 of 1' err || fail "it was not started again"
  done
done
for kind in training waiting deaf; do
  awk -v kind=$kind -v bound="$bound" '
    { life = $2 - $1; if (life > longest) longest = life }
    END { printf "%s: the last survivor of %d kills ended after at most %.2f s\n", kind, NR, longest
          exit kind != "deaf" && bound != "inf" && longest > bound }' lives.$kind || fail "$kind: more than $bound s"
done
