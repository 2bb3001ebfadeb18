#!/usr/bin/env bash
# One sample overflows, so the loss of its rank and all gradients of its step are not finite: --on-nonfinite stop, skip and rollback.
source "$(dirname "$0")/common.sh"
need_h5py
/usr/bin/python3 - <<'PYTHON' || fail "the data"
import h5py, numpy
random = numpy.random.default_rng(3)
for name, bad in ("one", [17]), ("all", range(64)), ("test", []):
    with h5py.File(name + ".h5", "w") as file:
        x = random.normal(size=(64, 16)).astype("float32")
        x[list(bad)] = 3e38
        file["x"], file["y"] = x, numpy.arange(64) % 10
        file["x_test"], file["y_test"] = numpy.full((8, 16), 3e38 if name == "test" else 0, dtype="float32"), numpy.arange(8)
PYTHON
options=(--model mlp --layers 2 --width 512 --batch-size 4 --log-steps 4 --timeline off --optimizer adam --lr 0.01)
one=("${options[@]}" --data one.h5)

counts() {  # RUN: skipped steps and rollbacks in its run.json
  /usr/bin/python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["skipped_steps"], r["rollbacks"])' "$1/run.json"
}

# events RUN: "STEP EVENT TO_STEP" of each
events() {
  /usr/bin/python3 - "$1" <<'PYTHON'
import json, sys
for line in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")):
    if "event" in line: print(line["step"], line["event"], line.get("to_step", ""))
PYTHON
}

train 2 "${one[@]}" --run-dir skipped --epochs 2 --on-nonfinite skip || fail "skip"
mapfile -t bad < <(events skipped)
[[ ${#bad[@]} == 2 && ${bad[*]} =~ ^[0-9]+\ skipped\ step\ +[0-9]+\ skipped\ step\ *$ ]] || fail "events: ${bad[*]}"
first=${bad[0]%% *} second=${bad[1]%% *}
((first <= 8 && second > 8)) || fail "the steps are $first and $second"
[[ $(counts skipped) == "2 0" ]] || fail "run.json of skip"
grep -qE "^step $first is skipped: the gradient of fc2[.a-z]* has a NaN or an infinity on rank [01]; the loss is not finite on rank [01]$" \
  out || fail "the message about the skipped step"
"$bin/farandole" checkpoint verify skipped >out 2>err || fail "the checkpoints after skipped steps"
! grep -qi "nan\|infinit" out || fail "a checkpoint is not finite"

train 2 "${one[@]}" --run-dir stopped
[[ $? == 1 ]] || fail "stop: wrong exit code"
grep -qE "step $first: the gradient of fc2[.a-z]* has a NaN or an infinity on rank ([01]); the loss is not finite on rank \1; lower --lr" \
  err || fail "stop: the message"

train 2 "${one[@]}" --run-dir early --on-nonfinite rollback
[[ $? == 1 ]] || fail "a rollback without a checkpoint: wrong exit code"
grep -q "there is no checkpoint yet" err || fail "a rollback without a checkpoint"

# The last step of this run is the bad one, so its checkpoint has the parameters and the optimizer of the one it returned to.
train 2 "${one[@]}" --run-dir back --epochs 1 --on-nonfinite skip || fail "the first epoch"
train 2 "${one[@]}" --run-dir back --epochs 2 --steps "$second" --on-nonfinite rollback || fail "rollback"
[[ $(events back | tail -n 1) == "$second rollback 8" ]] || fail "events: $(events back)"
[[ $(counts back) == "1 1" ]] || fail "run.json of rollback"
/usr/bin/python3 - "$second" <<'PYTHON' || fail "the parameters after a rollback"
import sys, h5py, numpy
before, after = (h5py.File(f"back/checkpoints/step-{int(step):08d}.h5") for step in (8, sys.argv[1]))
names = []
before.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) and name.startswith(("model", "optimizer")) else None)
assert len(names) > 8, names
for name in names:
    assert numpy.array_equal(before[name][()], after[name][()]), name
PYTHON
# It may go on from there.
train 2 "${one[@]}" --run-dir back --epochs 3 --on-nonfinite rollback || fail "after the rollback"

train 2 "${options[@]}" --data all.h5 --run-dir all --epochs 3 --on-nonfinite skip
[[ $? == 1 ]] || fail "only bad steps: wrong exit code"
grep -q "step 10: .* on ranks 0, 1; this is the 10th step in a row; lower --lr" err || fail "only bad steps"
train 2 "${one[@]}" --run-dir alone --epochs 2 --on-nonfinite skip --synchronize parameters:2 || fail "averaged parameters"

# Only the held-out samples overflow. Training goes on, and the line says so in words.
train 2 "${options[@]}" --data test.h5 --run-dir held_out --epochs 1 || fail "a held-out loss that is not finite"
grep -q 'the held-out loss is not finite' out && ! grep -qE '[^a-z]nan|inf[^oi]' out || fail "the words for it"
