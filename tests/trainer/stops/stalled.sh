#!/usr/bin/env bash
# A stopped rank of a training run is named, with the parameters that wait for it. The run continues
# when the rank continues.
source "$(dirname "$0")/../common.sh"
options=(--model mlp --data synthetic --width 16 --epochs 1000000 --log-steps 5 --checkpoint-every never --timeline off --run-dir run)
train 2 "${options[@]}" --stall-seconds soon && fail "--stall-seconds soon is accepted"
[[ $? == 64 && $(grep -c "stall-seconds is 'soon'" err) == 1 ]] || fail "--stall-seconds soon"

"$bin/farandole" run -n 2 -- "$bin/farandole" train "${options[@]}" --stall-seconds 3 >out 2>err &
launcher=$!
wait_for() { await "no '$1'" grep -qE -- "$1" err; }
await "the run ended early" test -s run/metrics.jsonl
stopped=
for pid in $(pgrep -x farandole-train); do
  [[ $(readlink "/proc/$pid/cwd") == "$PWD" ]] && grep -qzx OMPI_COMM_WORLD_RANK=1 "/proc/$pid/environ" && stopped=$pid
done
[[ -n $stopped ]] || fail "rank 1 is not found"
kill -STOP "$stopped"
wait_for "rank 1 \(pid $stopped on .*\) is missing: it is stopped \(state T\)"
if grep -qE "stall: rank 0 .* 'bucket 0'" err; then grep -qE "'bucket 0' \\(.*weight" err || fail "the parameters"; fi
kill -CONT "$stopped"
wait_for 'is over, after'
kill -USR1 $launcher
wait $launcher
code=$?
[[ $code == 75 ]] || fail "exit code $code instead of 75"
