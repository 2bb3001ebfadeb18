#!/usr/bin/env bash
# Models learn with bfloat16 and float16 as with float32, and a resumed run in float16 is bit-wise equal to an uninterrupted one. With float16
# the checkpoint has the factor of the loss, and a sample that overflows halves it.
source "$(dirname "$0")/common.sh"
need_h5py
short_text 60000
options=(--model gpt --data short --layers 1 --width 32 --heads 2 --context 32 --batch-size 16 --optimizer adamw
         --lr 0.003 --log-steps 5 --timeline off --epochs 1)

held_out() {  # RUN: the last held-out loss
  grep -o '"eval_loss":[0-9.]*' "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2
}

for precision in float32 bfloat16 float16; do
  train 2 "${options[@]}" --precision $precision --run-dir $precision || fail "$precision"
done
# GPUs alone round with tf32.
train 2 "${options[@]}" --precision tf32 --run-dir tf32 || fail "tf32"
last=$(ls float32/checkpoints | tail -n 1)
equal_arrays "float32/checkpoints/$last" "tf32/checkpoints/$last" || fail "tf32 is not float32 on the CPU"
for precision in bfloat16 float16; do
  /usr/bin/python3 -c 'import sys; a, b = map(float, sys.argv[1:]); assert 0 < abs(a - b) < 0.05 and b < 3.5, (a, b)' \
    "$(held_out float32)" "$(held_out $precision)" || fail "$precision learns differently"
done
train 2 "${options[@]}" --precision float16 --run-dir parts --steps 17 || fail "the first part in float16"
train 2 "${options[@]}" --precision float16 --run-dir parts || fail "the second part in float16"
grep -q "continuing from step 17" out || fail "it did not resume"
last=$(ls float16/checkpoints | tail -n 1)
equal_arrays "float16/checkpoints/$last" "parts/checkpoints/$last" || fail "the checkpoints differ"
/usr/bin/python3 - "float16/checkpoints/$last" "bfloat16/checkpoints/$last" <<'PYTHON' || fail "the arrays of the checkpoint"
import sys, h5py
half, other = (h5py.File(name) for name in sys.argv[1:])
assert half["loss_scale/factor"][()] == 65536 and half["loss_scale/good_steps"][()] == half.attrs["step"], half["loss_scale/factor"][()]
assert "loss_scale" not in other
assert half["model/wte.weight"].dtype == other["model/wte.weight"].dtype == "float32"
PYTHON

# The factor falls until the gradients of large losses fit, and training goes on.
/usr/bin/python3 - <<'PYTHON' || fail "the data"
import h5py, numpy
random = numpy.random.default_rng(3)
with h5py.File("large.h5", "w") as file:
    file["x"], file["y"] = 300 * random.normal(size=(8, 16)).astype("float32"), numpy.arange(8)
    file["x_test"], file["y_test"] = numpy.zeros((8, 16), dtype="float32"), numpy.arange(8)
PYTHON
train 2 --model mlp --layers 2 --width 32 --data large.h5 --batch-size 4 --lr 0.00001 --epochs 16 --precision float16 --run-dir large --checkpoint-keep 99 ||
  fail "gradients that overflow"
grep -q "step 1 is skipped: a gradient overflows float16; the loss is now multiplied by 32768" out || fail "it says nothing"
grep -q '"event":"skipped step"' large/metrics.jsonl && grep -qE '"skipped_steps": [1-9]' large/run.json || fail "it is not counted"
# Each overflow halves the factor once, also if a checkpoint is saved after it. Each epoch has one step, and its end is always saved.
/usr/bin/python3 - <<'PYTHON' || fail "the factor in the checkpoints"
import glob, json, h5py
skipped = [line["step"] for line in map(json.loads, open("large/metrics.jsonl")) if line.get("event") == "skipped step"]
files = [h5py.File(name) for name in glob.glob("large/checkpoints/*.h5")]
assert len(files) == 16 and skipped, (files, skipped)
for file in files:
    step = file.attrs["step"]
    assert file["loss_scale/factor"][()] == 65536 / 2 ** sum(other <= step for other in skipped), (step, skipped)
PYTHON
