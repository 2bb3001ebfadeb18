#!/usr/bin/env bash
# SIGUSR2 to the launcher or to any rank writes a trace so far while training continues, bit-wise unchanged, even if
# rank 0 is stopped.
source "$(dirname "$0")/common.sh"
need_h5py
options=(--model mlp --data synthetic --width 16 --log-steps 5 --checkpoint-every never --resume none)
"$bin/farandole" run -n 2 -- "$bin/farandole" train "${options[@]}" --epochs 1000000 --run-dir run --stall-seconds 0 >out 2>err &
launcher=$!
goes_on() { kill -0 $launcher || fail "the run ended early"; sleep 0.05; }
until [[ -s run/metrics.jsonl ]]; do goes_on; done
pids=()
for pid in $(pgrep -x farandole-train); do
  [[ $(readlink "/proc/$pid/cwd") == "$PWD" ]] || continue
  for r in 0 1; do grep -qzx OMPI_COMM_WORLD_RANK=$r "/proc/$pid/environ" && pids[r]=$pid; done
done
[[ ${#pids[@]} == 2 ]] || fail "the ranks are not found: ${pids[*]}"

# Each request writes a new, complete trace of both ranks; "$1" is the smallest number of steps in it. A trace of a
# repeated earlier request may come first.
last=
: >reaches.err
arrives() {
  for ((i = 0; i < 1200; i++)); do
    written=$(stat -c %.9Y run/timeline.json.gz 2>/dev/null) && [[ $written != "$last" ]] && reaches "$1" 2>reaches.err && break
    goes_on
  done
  ((i < 1200)) || fail "no trace with step $1: $(<reaches.err)"
  last=$written
}
reaches() {
  python3 - "$1" <<'PYTHON'
import gzip, json, sys
trace = json.load(gzip.open("run/timeline.json.gz"))
events = trace["traceEvents"]
steps = {pid: max((e["args"]["step"] for e in events if e["ph"] == "X" and e["pid"] == pid and e["name"] == "step"), default=-1) for pid in (1, 2)}
assert all(step >= int(sys.argv[1]) for step in steps.values()), steps
PYTHON
}
reached() { tail -n 1 run/metrics.jsonl | python3 -c 'import json, sys; print(json.loads(sys.stdin.read())["step"] - 1)'; }
later_than() { until (($(reached) > $1)); do goes_on; done; }
step=$(reached)
kill -USR2 $launcher
arrives "$step"
for r in 0 1; do
  later_than "$step"
  step=$(reached)
  kill -USR2 "${pids[r]}"
  arrives "$step"
done
later_than "$step"
step=$(reached)
kill -STOP "${pids[0]}"
touch run/recorder/merging  # as where it was merging just then
kill -USR2 "${pids[1]}"
arrives "$step"
kill -CONT "${pids[0]}"
later_than "$step"
kill -USR1 $launcher
wait $launcher
code=$?
[[ $code == 75 ]] || fail "exit code $code instead of 75"
grep -q 'trace requested by SIGUSR2: run/timeline.json.gz contains the .* of 2 of 2 ranks' err || fail "it does not say so"
[[ -s run/timeline.json.gz && ! -e run/recorder/merging ]] || fail "what is left: $(ls run run/recorder)"

# With and without requests, the parameters are equal.
train 2 "${options[@]}" --steps 300 --run-dir never || fail "never asked"
"$bin/farandole" run -n 2 -- "$bin/farandole" train "${options[@]}" --steps 300 --run-dir asked >out 2>err &
launcher=$!
await "the run ended early" test -s asked/metrics.jsonl
while kill -USR2 $launcher 2>/dev/null; do sleep 0.05; done
wait $launcher || fail "always asked: $?"
/usr/bin/python3 - <<'PYTHON' || fail "asking changed the parameters"
import glob, h5py
files = [h5py.File(sorted(glob.glob(f"{run}/checkpoints/*.h5"))[-1]) for run in ("never", "asked")]
names = []
files[0]["model"].visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
assert names
for name in names:
    assert (files[0]["model"][name][()] == files[1]["model"][name][()]).all(), name
PYTHON
