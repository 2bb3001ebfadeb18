#!/usr/bin/env bash
# A program with the public headers (own_training.cc) is killed at random moments and stopped by signals. It ends with the bits of an
# undisturbed run on the same ranks, and has seen each sample of an epoch once, on any ranks. With a number N, there are N kills
# instead of 3.
source "$(dirname "$0")/../../trainer/common.sh"
need_h5py
kills=${1:-3}
RANDOM=$((${FARANDOLE_TEST_SEED:-1} % 32768))
mkdir seen

# own RANKS RUN SETTING…
own() {
  local ranks=$1 run=$2
  shift 2
  timeout 240 "$bin/farandole" run -n "$ranks" --run-dir "$run" -- "$bin/own_training" "$@" >out 2>err
}

# Each sample of each epoch once, as far as the steps count: those of a start after the step from which the next one continued do not.
exactly_once() {  # NAME EPOCHS
  /usr/bin/python3 - "$@" <<'PYTHON'
import collections, glob, sys
name, epochs = sys.argv[1], int(sys.argv[2])
ranks = []
for file in glob.glob(f"seen/{name}.*"):
    lines = [line.split() for line in open(file).read().splitlines()]
    if lines: ranks.append((int(lines[0][2]), int(lines[0][1]), [tuple(map(int, line)) for line in lines[1:] if len(line) == 3]))
counts = collections.Counter()
for began, _, lines in ranks:
    limit = min((step for other, step, _ in ranks if other > began), default=float("inf"))
    counts.update((epoch, sample) for epoch, step, sample in lines if step <= limit)
assert set(counts) == {(epoch, sample) for epoch in range(epochs) for sample in range(360)}, len(counts)
wrong = {key: n for key, n in counts.items() if n != 1}
assert not wrong, list(wrong.items())[:5]
PYTHON
}

own 2 whole seen=seen/whole || fail "the undisturbed run"
grep -q '^begins at step 0$' out || fail "the undisturbed run is no new one"
bits=$(grep '^bits' out)
exactly_once whole 4 || fail "the samples of the undisturbed run"
[[ -z $(cat err) ]] || fail "it says something on stderr"
last=$(ls whole/checkpoints | tail -n 1)
[[ $last == step-00000120.h5 ]] || fail "the last checkpoint is $last"
"$bin/farandole" checkpoint verify whole >out 2>err || fail "its checkpoints"
/usr/bin/python3 - <<'PYTHON' || fail "what the undisturbed run leaves"
import collections, glob, gzip, json, h5py
run = json.load(open("whole/run.json"))
assert (run["exit_code"], run["ranks"], run["global_batch"], run["restarts"]) == (0, 2, 12, 0), run
# 12 samples, 8 inputs, 16 units, 1 output; the gradient of the input is not needed.
assert run["model_flops"] == 2 * 12 * (2 * 8 * 16 + 3 * 16 * 1) and "counted" in run["model_flops_from"], run
assert "own_training" in run["program"] and run["parameters"] > 0, run
lines = [json.loads(line) for line in open("whole/metrics.jsonl")]
training = [line for line in lines if "loss" in line]
assert [line["step"] for line in training] == [1, *range(5, 121, 5)], training
assert all(line["lr"] == 0.01 and line["step_ms"] > 0 and line["samples_per_s"] > 0 for line in training), training
evaluations = [line for line in lines if "eval_loss" in line]
assert [line["step"] for line in evaluations] == [30, 60, 90, 120], evaluations
file = h5py.File("whole/checkpoints/step-00000120.h5")
assert file["model/0.weight"].shape == (16, 8) and "model/1.running_mean" in file, list(file["model"])
assert "optimizer/state/0.weight/momentum_buffer" in file and "values/average" in file and "rng/rank-0001" in file
best = min(evaluations, key=lambda line: line["eval_loss"])
assert file.attrs["best_step"] == best["step"], (file.attrs["best_step"], evaluations)
assert f"step-{best['step']:08}.h5" in " ".join(glob.glob("whole/checkpoints/*")), best
events = json.load(gzip.open("whole/timeline.json.gz"))["traceEvents"]
steps = collections.Counter(event["args"]["step"] for event in events if event["ph"] == "X" and event["name"] == "step")
assert dict(steps) == {step: 2 for step in range(120)}, steps  # one on each rank: the optimizer marks none
PYTHON
"$bin/farandole" analyze whole --format json >report 2>err || fail "its analysis"
goodput() {  # JSON CONDITION
  /usr/bin/python3 -c 'import json, sys; goodput = json.load(open(sys.argv[1]))["runs"][0]["goodput"]; assert eval(sys.argv[2]), goodput' "$@"
}
goodput report 'goodput["starts"] == 1 and 0 < goodput["fraction"] < 1 and goodput["rank_seconds"]["saving"] > 0' || fail "its goodput"

# Kills at random moments.
"$bin/farandole" run -n 2 --max-restarts 1000000 --run-dir killed -- bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' bash \
  "$bin/own_training" seen=seen/killed pause_ms=$((kills > 3 ? 150 : 40)) every=$((kills > 3 ? 2 : 7))steps >out 2>err &
launcher=$!
trap 'kill -9 $launcher 2>/dev/null; rm -rf "$work"' EXIT
for ((i = 0; i < kills; i++)); do
  more_starts() { [[ $(grep -cE '^(begins|continues) at step' out) -gt $i ]]; }
  until more_starts || ! kill -0 $launcher 2>/dev/null; do read -rt 0.02 <> <(:) || true; done
  # A job that makes no progress three times is not started again. So every second start comes to a checkpoint.
  begun_at=$(ls killed/checkpoints 2>/dev/null | tail -n 1)
  progressed() { [[ $(ls killed/checkpoints 2>/dev/null | tail -n 1) != "$begun_at" ]]; }
  until ((i % 2 == 0)) || progressed || ! kill -0 $launcher 2>/dev/null; do read -rt 0.02 <> <(:) || true; done
  kill -0 $launcher 2>/dev/null || break  # It has come to its end.
  sleep 0.$(printf %03d $((100 + RANDOM % 900)))
  kill -9 "$(<"pid.$((RANDOM % 2))")" 2>/dev/null
done
wait $launcher || fail "exit code $? after the kills"
((i > 1 && (kills <= 3 || i >= kills))) || fail "it was killed only $i times"
[[ $(grep '^bits' out) == "$bits" ]] || fail "the result differs after $i kills: $(grep '^bits' out) instead of $bits"
equal_arrays whole/checkpoints/$last killed/checkpoints/$last optimizer/ rng/ values/ || fail "the checkpoints differ"
exactly_once killed 4 || fail "the samples after kills"
echo "$i kills: $(grep -E 'continues at' out | tr '\n' ' ')"

# Stops by signals, and other numbers of ranks.
previous=0
for ranks in 2 1; do
  "$bin/farandole" run -n $ranks --run-dir moved -- "$bin/own_training" seen=seen/moved pause_ms=20 >out 2>err &
  launcher=$!
  later() { [[ -e moved/metrics.jsonl && $(tail -n 1 moved/metrics.jsonl | sed -nE 's/^\{"step":([0-9]+).*/\1/p') -gt $previous ]]; }
  await "the run on $ranks ranks ended early" later
  kill -USR1 $launcher
  wait $launcher
  [[ $? == 75 ]] || fail "exit code $? instead of 75 on $ranks ranks"
  grep -q 'stop requested: saved at step' out || fail "it does not say where it stopped"
  grep -q '"exit_code": 75' moved/run.json || fail "run.json: $(<moved/run.json)"
  previous=$(($(ls moved/checkpoints | tail -n 1 | tr -dc '0-9' | sed 's/5$//;s/^0*//')))
done
own 3 moved seen=seen/moved || fail "the end on 3 ranks"
exactly_once moved 4 || fail "the samples on 1, 2 and 3 ranks"

# A training that has ended is not done again, and one that does not get better ends early.
own 2 whole || fail "a second start"
grep -q '^continues at step 120$' out && [[ $(grep '^bits' out) == "$bits" ]] || fail "the second start has trained"
"$bin/farandole" status whole --format json >status || fail "its status"
goodput status 'goodput["starts"] == 2 and goodput["rank_seconds"]["restoring"] > 0' || fail "the goodput of two starts"
own 2 early epochs=100 patience=2 best="max loss" model_flops=5000000 peak_tflops=2 || fail "early stop"
/usr/bin/python3 -c 'import json
run = json.load(open("early/run.json"))
assert run["model_flops"] == 5e6 and run["model_flops_from"] == "given by the program" and run["peak_tflops"] == 2, run
assert abs(run["mfu"] * 2 * 2 - run["tflops"]) < 1e-12 and run["tflops"] > 0, run' || fail "what it says of its model"
[[ $(grep -c eval_loss early/metrics.jsonl) -lt 20 ]] || fail "it does not stop early"

# Mistakes, each with one line.
mistake() {  # CODE PATTERN RUN SETTING…
  local code=$1 pattern=$2
  own "$ranks" "${@:3}"
  local got=$?
  [[ $got == "$code" ]] || fail "exit code $got instead of $code: ${*:3}"
  grep -qE -- "$pattern" err || fail "stderr lacks '$pattern': ${*:3}"
  [[ $(grep -vc '^farandole run: ' err) == 1 ]] || fail "stderr is not one line: ${*:3}"
}
ranks=1
mistake 64 'already holds a run .step-00000120.h5.; call resume' whole resume=no epochs=5
mistake 64 'another model: 0.weight has 128 elements there and 256 here' whole width=32
mistake 64 'SamplerOptions::seed was 7, not 8' early seed=8 epochs=100
mistake 64 "model_flops cannot be -1; it counts operations" wrong model_flops=-1
mistake 64 "best cannot be 'loss'; give for example" wrong best=loss
mistake 64 'best is about accuracy, which evaluate.. does not get' wrong best="max accuracy"
mistake 64 "checkpoint-every cannot be 'often'" wrong every=often
ranks=2
mistake 64 'global_batch is 24, but the data loader takes batches of 6 on each of 2 ranks; leave it out, or set it to 12' other global_batch=24
mistake 1 'the loss is not finite up to step 5 on rank' nan nan_at=3
timeout 240 "$bin/farandole" run -n 1 -- "$bin/own_training" >out 2>err
[[ $? == 64 ]] && grep -q 'a Run needs a run directory; start the program with farandole run --run-dir RUN' err || fail "without a run directory"
