#!/usr/bin/env bash
# farandole run --max-restarts: a job whose ranks are killed goes on from its last checkpoint; killed_processes.sh shows that
# its result is bit-wise equal to that of an undisturbed run. What would fail again is not started again.
source "$(dirname "$0")/../common.sh"
options=(--model gpt --data "$text" --layers 1 --width 32 --heads 2 --context 32 --batch-size 16 --dropout 0.1
         --optimizer adamw --lr 0.001 --epochs 2 --log-steps 1 --checkpoint-every 5steps --resume none)

# Rank 1 kills itself as soon as there is a checkpoint of its start; in its first start before there is one.
cat >program <<'PROGRAM'
#!/bin/bash
start=${FARANDOLE_RESTARTS:-0}
newest() { ls killed/checkpoints/*.h5 2>/dev/null | tail -n 1; }
if [[ $OMPI_COMM_WORLD_RANK == 1 && $start -lt 2 ]]; then
  before=$(newest) victim=$$
  (
    until [[ -s killed/metrics.jsonl && ($start == 0 || $(newest) != "$before") ]]; do kill -0 $victim || exit; sleep 0.01; done
    kill -9 $victim
  ) >/dev/null 2>&1 &
fi
exec "$@"
PROGRAM
chmod +x program
timeout 240 "$bin/farandole" run -n 2 --max-restarts 5 -- ./program "$bin/farandole" train "${options[@]}" --run-dir killed >out 2>err ||
  fail "the disturbed run: $?"
[[ $(grep -c '^farandole run: restart [12] of 5$' err) == 2 && $(grep -c 'restart 3' err) == 0 ]] || fail "restarts"
[[ $(ls killed/starts | xargs) == "0001 0002" ]] || fail "starts: $(ls killed/starts)"
/usr/bin/python3 - <<'PYTHON' || fail "run.json"
import json
run = json.load(open("killed/run.json"))
assert run["restarts"] == 2 and run["lost_steps"] > 0 and run["exit_code"] == 0, run
# The rank that survives ends by itself. In MPI_Abort, it would wait until mpirun kills it.
ends = [json.load(open(f"killed/starts/000{start}/launch/rank-0000.json")) for start in (1, 2)]
assert any((end["exit_code"], end["signal"]) == (70, 0) for end in ends), ends
PYTHON

# The trace of a start shows the work of the start before it that is lost.
"$bin/farandole" run -n 2 --max-restarts 1 -- "$bin/farandole" train "${options[@]}" --resume auto --checkpoint-every 100steps \
  --run-dir traced >out 2>err &
launcher=$!
await "it ended before step 120" more_lines traced/metrics.jsonl 120
kill -9 "$(pgrep -P "$(pgrep -P "$(pgrep -P $launcher)" | head -n 1)")"
wait $launcher || fail "a start after lost work: $?"
/usr/bin/python3 - <<'PYTHON' || fail "the trace does not show the lost work"
import gzip, json
trace = json.load(gzip.open("traced/timeline.json.gz"))
spans = {event["name"]: event for event in trace["traceEvents"] if event["ph"] == "X"}
lost = json.load(open("traced/run.json"))["lost_steps"]
assert lost > 0 and f"lost work: {lost} steps" in spans, (lost, [name for name in spans if "lost" in name])
assert spans["restart"]["dur"] > 0 and "restore checkpoint" in spans
# A save within an epoch begins when the checkpoint before has been written. The ranks wait only at ends of epochs and at the end.
own = [(event["cat"], event["name"]) for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == spans["restart"]["pid"]]
waits, saves = own.count(("checkpoint", "wait for the last checkpoint")), own.count(("checkpoint", "snapshot"))
epochs = own.count(("evaluation", "evaluation"))
assert saves > epochs and waits <= epochs + 1, (waits, saves, epochs)
PYTHON

# again CODE STARTS PATTERN OPTION… -- PROGRAM…: ends with the code after so many starts, and says why
again() {
  local code=$1 starts=$2 pattern=$3
  shift 3
  : >started
  timeout 300 "$bin/farandole" run -n 2 "$@" >out 2>err
  local got=$?
  [[ $got == "$code" ]] || fail "exit code $got instead of $code: $*"
  [[ $(grep -c . started) == "$starts" ]] || fail "$(grep -c . started) starts instead of $starts: $*"
  [[ -z $pattern ]] || grep -qE -- "$pattern" err || fail "stderr lacks '$pattern': $*"
}
note='[[ $OMPI_COMM_WORLD_RANK != 0 ]] || echo start >>started'
again 3 2 'has been started again 1 time \(--max-restarts\)' --max-restarts 1 -- bash -c "$note; exit 3"
again 3 3 'failed 3 times in a row with exit code 3 at step 0' --max-restarts 9 -- bash -c "$note; exit 3"
again 64 1 '' --max-restarts 9 -- bash -c "$note; exit 64"
again 75 1 '' --max-restarts 9 -- bash -c "$note; exit 75"
again 3 1 '' -- bash -c "$note; exit 3"

# A failure that comes back at the same step, and one after the launcher was told to end.
small=(--model mlp --data synthetic --width 16 --timeline off --log-steps 1)
timeout 300 "$bin/farandole" run -n 2 --max-restarts 9 -- "$bin/farandole" train "${small[@]}" --lr 1e39 --run-dir bad >out 2>err
[[ $? == 1 && $(grep -c '^farandole run: restart' err) == 2 ]] || fail "a run that diverges each time"
grep -qE 'failed 3 times in a row with exit code 1 at step [0-9]+' err && grep -q 'the loss is' err || fail "no diagnosis"
"$bin/farandole" run -n 2 --max-restarts 9 -- "$bin/farandole" train "${small[@]}" --epochs 1000000 --run-dir told >out 2>err &
launcher=$!
await "it ended early" test -s told/metrics.jsonl
kill -TERM $launcher
wait $launcher
[[ $? == 75 ]] && ! grep -q 'restart' err || fail "it was started again after SIGTERM"
again 64 0 'max-restarts' --max-restarts -1 -- bash -c "$note"
