#!/usr/bin/env bash
# What the model of a step needs, how fast it is computed and against which peak: in run.json, at the end of the training, in
# `farandole status` and in the report.
source "$(dirname "$0")/common.sh"
short_text 20000
options=(--model gpt --layers 2 --width 64 --heads 2 --context 32 --data short --batch-size 4 --accumulate 2 --seed 3)
train 2 "${options[@]}" --steps 12 --log-steps 4 --peak-tflops 0.5 --run-dir run || fail "a training"
grep -qE '^model: [0-9.e-]+ [GT]FLOP/s, MFU [0-9.]+ % \([0-9.e-]+ [GT]FLOP a step, counted from .* in step 1; peak 0.5 ' out || fail "its end"
"$bin/farandole" status run --format json >status 2>err || fail "its status"
"$bin/farandole" analyze run --format json >report 2>err || fail "its report"
/usr/bin/python3 - <<'PYTHON' || fail "its figures"
import json
layers, width, context = 2, 64, 32
tokens = 2 * 2 * 4 * context  # ranks, passes, samples
flops = tokens * (6 * (12 * layers * width**2 + 256 * width) + 12 * layers * width * context)
run = json.load(open("run/run.json"))
assert run["model_flops"] == flops, (run["model_flops"], flops)
assert run["peak_tflops"] == 0.5 and run["peak_from"] == "given", run
assert abs(run["mfu"] * 2 * 0.5 - run["tflops"]) < 1e-9 and run["tflops"] > 0, run  # each of two ranks has this peak
status = json.load(open("status"))["runs"][0]
assert abs(status["tflops"] - flops / 1e9 / status["step_ms"]) < 1e-9 * status["tflops"] + 1e-12, status
assert abs(status["mfu"] - status["tflops"]) < 1e-12, status
report = json.load(open("report"))["runs"][0]
model = report["model"]
assert model["flops_per_step"] == flops and abs(model["tflops"] / (flops / 1e12 * report["steps_per_s"]) - 1) < 1e-9, model
assert abs(model["mfu"] - model["tflops"]) < 1e-12 and model["peak_tflops"] == 0.5, model
PYTHON
"$bin/farandole" status run >out 2>err && grep -qE '^  model +[0-9.e-]+ [GT]FLOP/s, MFU ' out || fail "its status as text"

# On CPUs there is no peak. The last step of an epoch has fewer samples, and does not count when a training continues there.
train 1 "${options[@]}" --steps 1 --run-dir again || fail "the first step"
train 1 "${options[@]}" --steps 3 --run-dir again || fail "more steps"
"$bin/farandole" analyze again >out 2>err && grep -qE '^  model +[0-9.e-]+ [GT]FLOP/s \(' out || fail "a report without a peak"
! grep -qE 'mfu|peak' again/run.json || fail "a peak of CPUs"
