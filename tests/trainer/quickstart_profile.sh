#!/usr/bin/env bash
# The quickstart's run on 2 ranks: a loss below 2.4 nats per byte, a text sample, every file of the run
# directory, and a verdict.
source "$(dirname "$0")/common.sh"
need_h5py
[[ -e /usr/share/common-licenses/GPL-3 ]] || { echo "skipped: there are no licence texts of Debian, on which this profile trains"; exit 77; }
timeout 240 "$bin/farandole" run -n 2 --log-dir run/logs -- "$bin/farandole" train --profile quickstart --run-dir run >out 2>err \
  || fail "training"
[[ ! -s err ]] || fail "stderr is not empty"
/usr/bin/python3 - <<'PYTHON' || fail "the run's files"
import gzip, json, glob, h5py
run = json.load(open("run/run.json"))
assert run["ranks"] == 2 and len(run["hosts"]) == 2 and run["device"] == "cpu" and run["exit_code"] == 0, run
assert run["restarts"] == 0 and run["global_batch"] > 0 and run["parameters"] > 1000 and run["ended"] >= run["started"], run
lines = [json.loads(line) for line in open("run/metrics.jsonl")]
training = [line for line in lines if "loss" in line]
evaluation = [line for line in lines if "eval_loss" in line]
assert set(training[0]) == {"step", "epoch", "loss", "lr", "samples_per_s", "step_ms"}, training[0]
assert evaluation[-1]["eval_loss"] < 2.4, evaluation
trace = json.load(gzip.open("run/timeline.json.gz"))
events = trace["traceEvents"]
names = {(e["pid"], e["cat"]) for e in events if e["ph"] == "X"}
for pid in (1, 2):
    for category in ("data", "forward", "backward", "optimizer", "communication", "wait", "step", "evaluation"):
        assert (pid, category) in names, (pid, category)
steps = [e for e in events if e.get("cat") == "step" and e["pid"] == 2]
assert len(steps) == training[-1]["step"], (len(steps), training[-1])
starts = sorted(e["id"] for e in events if e["ph"] == "s")
assert starts and starts == sorted(e["id"] for e in events if e["ph"] == "f")
assert {e["name"] for e in events if e["ph"] == "C"} >= {"CPU %", "memory MiB"}
best = h5py.File(sorted(glob.glob("run/checkpoints/step-*.h5"))[-1])
assert best.attrs["step"] == training[-1]["step"] and json.loads(best.attrs["config"])["model"]["name"] == "gpt"
PYTHON
grep -q 'A sample of the generated text' out || fail "no sample"
[[ -s run/logs/rank-0000.log && -e run/logs/rank-0001.log ]] || fail "no logs"
"$bin/farandole" analyze run >out 2>err || fail "analyze"
"$bin/farandole" analyze run --format json | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
run = report["runs"][0]
assert report["farandole_report"] == 1 and run["ranks"] == 2 and run["throughput_samples_per_s"] > 0
assert 0.95 < sum(run["phases"].values()) <= 1 + 1e-9, run["phases"]
assert 0 <= run["communication"]["overlap"] <= 1 and "unknown" in run["gpu"] and run["verdict"]
' || fail "the report"
