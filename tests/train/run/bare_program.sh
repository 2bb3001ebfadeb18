#!/usr/bin/env bash
# Status, doctor and analyzer know a program of one's own, which has no run.json: its steps, rate, checkpoints and goodput.
source "$(dirname "$0")/../../trainer/common.sh"
launched() { timeout 300 "$bin/farandole" run -n 2 --run-dir run "$@"; }
shows() { timeout 60 "$bin/farandole" status run >status 2>&1 && grep -qE -- "$1" status; }
has() { grep -qE -- "$2" "$1" || fail "no '$2' in: $(<"$1")"; }

mkdir run
launched -- "$bin/bare_program" run >job.out 2>job.err &
launcher=$!
until shows 'running, step [0-9]{2,} of this start' || ! kill -0 $launcher 2>/dev/null; do sleep 0.1; done
has status '^  rate +[0-9.]+ steps/s, [0-9.]+ ms per step; for samples/s, give farandole::Run the global_batch'
has status '^  checkpoint +none of Farandole; model.pt looks like one, '
has status '^  goodput +[0-9.]+ %'
timeout 60 "$bin/farandole" doctor run >doctor || fail "the doctor of a running program"
has doctor '^The run is still running, at step [0-9]+'
touch run/stop
wait $launcher || fail "the program: $? $(<job.err)"
shows 'run: finished, step' || fail "not finished: $(<status)"
timeout 60 "$bin/farandole" analyze run >report || fail "analyze"
has report 'throughput +[0-9.]+ steps/s; samples/s are unknown: .*give'
has report 'goodput +[0-9.]+ %'
if grep -E -- '--(batch|bucket|compression|checkpoint|validation)' report; then fail "an option of the trainer is no remedy for a program"; fi

rm -r run
mkdir run
launched --max-restarts 1 -- "$bin/bare_program" run numbered >job.out 2>job.err || fail "the program with numbers: $? $(<job.err)"
shows 'goodput .* = 100 − .*lost steps [0-9.]+ − restarts .*; 2 starts' || fail "no goodput: $(<status)"
timeout 60 "$bin/farandole" doctor run/starts/0001 >doctor || fail "the doctor of an earlier start"
has doctor '^Rank 1 on .* was killed by signal 9'
timeout 60 "$bin/farandole" status run --format json >status.json
timeout 60 "$bin/farandole" analyze run --format json >report.json
python3 - <<'PYTHON' || fail "goodput: $(<status)"
import json
first, last = (json.load(open(f"run/{folder}launch/job.json")) for folder in ("starts/0001/", ""))
allocated = 2e-9 * (last["end_ns"] - first["start_ns"])
for goodput in json.load(open("status.json"))["runs"][0]["goodput"], json.load(open("report.json"))["runs"][0]["goodput"]:
    parts = goodput["rank_seconds"]
    assert abs(sum(parts.values()) - allocated) < 0.005 * allocated, (parts, allocated)
    assert goodput["starts"] == 2 and goodput["between_jobs_s"] == 0 and "left_out" not in goodput, goodput
    # Steps 5 to 8 were done again. Each step sleeps for 20 ms; 20 steps count.
    assert parts["lost_steps"] > 2 * 3 * 0.02 and parts["productive"] > 2 * 19 * 0.02 and parts["restarts"] > 0, parts
    assert abs(goodput["fraction"] - parts["productive"] / allocated) < 0.005, goodput
PYTHON
