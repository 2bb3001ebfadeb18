#!/usr/bin/env bash
# A stop at the end of an epoch, or during its evaluation: the next start evaluates it, so every epoch has its scores.
# Checkpoints that are due at the end of an epoch are saved.
source "$(dirname "$0")/../common.sh"
need_h5py
/usr/bin/python3 - <<'PYTHON' || fail "the data"
import h5py, numpy
random = numpy.random.default_rng(3)
for name, held_out in ("short", 8), ("long", 200000):
    with h5py.File(name + ".h5", "w") as file:
        file["x"], file["y"] = random.normal(size=(16, 16)).astype("float32"), numpy.arange(16) % 10
        file["x_test"], file["y_test"] = numpy.zeros((held_out, 16), dtype="float32"), numpy.zeros(held_out, dtype="int64")
PYTHON
# Each epoch has one step, so the job always stops at the end of one.
options=(--model mlp --width 16 --batch-size 8 --log-steps 1 --epochs 1000000 --checkpoint-every never --timeline off)

lines() { grep -cs "$1" run/metrics.jsonl; }
# stop WHEN: starts the run, and stops it once it trains and WHEN, which gets the number of earlier evaluations, is true.
stop() {
  local before
  before=$(lines eval_loss)
  rm -f out  # Otherwise, the last start's could be taken for this one's.
  "$bin/farandole" run -n 2 -- "$bin/farandole" train "${options[@]}" --run-dir run >out 2>err &
  local launcher=$!
  await "the run ended early" grep -qs "samples per step" out
  await "the run ended early" "$1" "$before"
  kill -TERM $launcher
  wait $launcher
  [[ $? == 75 ]] || fail "the end of a run that was told to stop"
}
trained() { [[ $(lines eval_loss) -gt $(($1 + 3)) ]]; }
evaluates() { [[ $(lines '"loss"') -gt $(lines eval_loss) ]]; }

is_whole() {  # every epoch up to the last is evaluated once
  /usr/bin/python3 - <<'PYTHON' || fail "$1"
import json
epochs = [line["epoch"] for line in map(json.loads, open("run/metrics.jsonl")) if "eval_loss" in line]
assert epochs == list(range(1, len(epochs) + 1)), epochs
steps = [line["step"] for line in map(json.loads, open("run/metrics.jsonl")) if "loss" in line]
assert steps == list(range(1, len(steps) + 1)), steps
assert len(steps) - len(epochs) in (0, 1), (steps[-1], epochs[-1])
PYTHON
}
options+=(--data short.h5)
for turn in 1 2; do
  stop trained
  is_whole "after stop $turn at the end of an epoch"
done

rm -r run
options+=(--data long.h5)
for when in evaluates trained; do
  stop $when
  is_whole "after a stop during an evaluation"
done

# If --steps has ended the training, nothing is left to start again for: the training is saved at once, and the evaluation goes on.
last=("${options[@]}" --steps 1 --timeline all)
for attempt in 1 2 3 4 5; do  # The signal may come after the evaluation.
  rm -rf last
  "$bin/farandole" run -n 2 -- "$bin/farandole" train "${last[@]}" --run-dir last >out 2>err &
  launcher=$!
  until grep -qs '"loss"' last/metrics.jsonl; do kill -0 $launcher 2>/dev/null || break; done
  kill -TERM $launcher 2>/dev/null
  wait $launcher || fail "the end of a run that was told to stop in its last evaluation"
  saved=$(zcat last/timeline.json.gz | grep -o '"name":"snapshot"' | grep -c .)  # Of both ranks.
  [[ $saved != 4 ]] || break
done
[[ $saved == 4 ]] || fail "a stop in the last evaluation saves nothing before its end: $saved snapshots"
[[ $(grep -c eval_loss last/metrics.jsonl) == 1 ]] || fail "the last evaluation"

# Checkpoints that are due at the end of an epoch, each of one step. Later ones wait until the first one is written.
"$bin/farandole" run -n 2 -- "$bin/farandole" train --model mlp --width 16 --batch-size 8 --data short.h5 --epochs 10 --checkpoint-every 2steps \
  --checkpoint-keep 99 --run-dir due >out 2>err || fail "epochs of one step"
[[ -e due/checkpoints/step-00000002.h5 && -e due/checkpoints/step-00000010.h5 ]] || fail "checkpoints: $(ls due/checkpoints)"
