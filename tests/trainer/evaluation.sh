#!/usr/bin/env bash
# The held-out loss of equal parameters is equal on any number of ranks. HDF5 data and plain IDX files can be used for
# training. The timeline has only the requested steps.
source "$(dirname "$0")/common.sh"
need_h5py
/usr/bin/python3 - <<'PYTHON'
import h5py, numpy
rng = numpy.random.default_rng(1)
y = rng.integers(0, 4, 1003)
x = rng.normal(size=(1003, 6)) + 3 * numpy.eye(6)[y]
with h5py.File("data.h5", "w") as f:
    f["x"], f["y"] = x.astype("f4"), y.astype("i4")
PYTHON
frozen=(--model mlp --data data.h5 --width 16 --layers 2 --lr 0 --epochs 1 --batch-size 7 --timeline off)
for ranks in 1 3; do
  train "$ranks" "${frozen[@]}" --run-dir "frozen$ranks" || fail "$ranks ranks"
  grep -o '"eval_loss":[^}]*' "frozen$ranks/metrics.jsonl" >>evaluations
done
/usr/bin/python3 - <<'PYTHON' || fail "the evaluation depends on the number of ranks"
import json
lines = [json.loads("{" + line + "}") for line in open("evaluations")]
assert len(lines) == 2, lines
for line in lines:
    assert abs(line["eval_loss"] - lines[0]["eval_loss"]) < 1e-6 and line["eval_accuracy"] == lines[0]["eval_accuracy"], lines
PYTHON
# Lines of metrics.jsonl whose steps lie before and after an evaluation.
train 2 --model mlp --data data.h5 --width 16 --layers 2 --epochs 3 --batch-size 8 --log-steps 10 --run-dir rates || fail "three epochs"
/usr/bin/python3 - <<'PYTHON' || fail "steps cannot take longer than metrics.jsonl says"
import gzip, json
spans = {}
for event in json.load(gzip.open("rates/timeline.json.gz"))["traceEvents"]:
    if event.get("cat") == "step" and event.get("ph") == "X" and event["pid"] == 1:  # rank 0
        spans[event["args"]["step"]] = event["dur"] / 1e3
lines = [line for line in map(json.loads, open("rates/metrics.jsonl")) if "step_ms" in line]
before = 0
for line in lines:
    steps = range(before, line["step"])
    before = line["step"]
    assert line["step_ms"] * len(steps) >= 0.99 * sum(spans[step] for step in steps), (line, [spans[step] for step in steps])
assert len(lines) > 10 and any(line["step"] // 57 > (line["step"] - 10) // 57 for line in lines), lines
PYTHON
[[ ! -e frozen1/timeline.json.gz && ! -e frozen1/recorder ]] || fail "--timeline off leaves a timeline"

train 2 --model mlp --data data.h5 --width 16 --layers 2 --optimizer adam --lr 0.005 --epochs 6 --timeline steps=10-19 \
  --checkpoint-keep 2 --run-dir "a run" || fail "training on HDF5"
[[ $(grep -cE '^ +[01]  [^ ]+ +[0-9]+ +[1-9][0-9]* +[0-9.]+ +[0-9.]+$' out) == 2 ]] || fail "there is no table of what ranks use"
/usr/bin/python3 - <<'PYTHON' || fail "the run on HDF5"
import gzip, json, glob
accuracy = [json.loads(line) for line in open("a run/metrics.jsonl")][-1]["eval_accuracy"]
assert accuracy > 0.9, accuracy
usage = [line for line in map(json.loads, open("a run/metrics.jsonl")) if "cpu_percent" in line]
assert [line["epoch"] for line in usage] == list(range(1, 7)), usage
assert all(len(line[name]) == 2 for line in usage for name in ("cpu_percent", "memory_mib", "read_mb", "written_mb")), usage
assert min(usage[-1]["memory_mib"]) > 10 and min(usage[-1]["cpu_percent"]) > 0, usage
events = json.load(gzip.open("a run/timeline.json.gz"))["traceEvents"]
assert sorted({e["args"]["step"] for e in events if e.get("cat") == "step"}) == list(range(10, 20))
assert 2 <= len(glob.glob("a run/checkpoints/step-*.h5")) <= 3, glob.glob("a run/checkpoints/*")
PYTHON
