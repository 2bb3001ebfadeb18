#!/usr/bin/env bash
# A run that is resumed within an epoch on other ranks, or with another batch size, sees each sample of the epoch exactly once.
# The model is one linear layer and each sample has an input of its own, so the weights of that input tell by how much the sample
# has changed the model. The learning rate is so small that the samples do not influence each other.
source "$(dirname "$0")/../common.sh"
need_h5py
/usr/bin/python3 - <<'PYTHON' || fail "the data"
import h5py, numpy
samples = 600
with h5py.File("samples.h5", "w") as file:
    file["x"] = numpy.eye(samples, dtype="float32")
    file["y"] = numpy.arange(samples) % 10
    file["x_test"] = numpy.zeros((8, samples), dtype="float32")
    file["y_test"] = numpy.arange(8)
with h5py.File("samples.h5") as file, h5py.File("other.h5", "w") as other:
    for name in file: other[name] = file[name][()]
    other["x"][7, 8] = 1
PYTHON
options=(--model mlp --layers 1 --data samples.h5 --lr 0.0001 --scale-lr off --timeline off)

# part RUN RANKS BATCH ACCUMULATE STEPS: trains from where RUN is to step STEPS in all; 0: to the end of the epoch
part() {
  train "$2" "${options[@]}" --run-dir "$1" --batch-size "$3" --accumulate "$4" --steps "$5" || fail "$*"
}

# exactly_once RUN PART…: of ranks:batch:accumulate:steps
exactly_once() {
  local run=$1 ranks batch accumulate steps
  shift
  for one in "$@"; do
    IFS=: read -r ranks batch accumulate steps <<<"$one"
    part "$run" "$ranks" "$batch" "$accumulate" "$steps"
  done
  /usr/bin/python3 - "$run" "$@" <<'PYTHON' || fail "$run: $*"
import glob, sys, h5py, numpy
def weights(folder):
    with h5py.File(sorted(glob.glob(folder + "/checkpoints/*.h5"))[-1]) as file:
        return (file["model/fc1.weight"][()].astype("float64"), file["model/fc1.bias"][()].astype("float64"),
                file.attrs["epoch"], file["sampler/samples"][()])
start, bias, _, _ = weights("start")
end, _, epoch, inside = weights(sys.argv[1])
assert epoch == 1 and inside == 0, (epoch, inside)
samples = start.shape[1]
scores = start + bias[:, None]
probability = numpy.exp(scores) / numpy.exp(scores).sum(axis=0)
own = numpy.arange(samples) % 10
found = (end - start)[own, numpy.arange(samples)] / (1e-4 * (1 - probability[own, numpy.arange(samples)]))
expected, seen, step = [], 0, 0
for ranks, batch, accumulate, steps in ([int(n) for n in part.split(":")] for part in sys.argv[2:]):
    while seen < samples and (steps == 0 or step < steps):
        left = -(-(samples - seen) // (ranks * batch))
        passes = min(accumulate, left)
        for _ in range(passes):
            count = min(ranks * batch, samples - seen)
            expected += [1 / (passes * count)] * count
            seen += count
        step += 1
assert len(expected) == samples, len(expected)
error = numpy.abs(numpy.sort(found) / numpy.sort(expected) - 1).max()
assert error < 0.05, (error, numpy.sort(found)[:5], numpy.sort(expected)[:5], numpy.sort(found)[-5:], numpy.sort(expected)[-5:])
PYTHON
}

train 1 "${options[@]}" --lr 0 --steps 1 --run-dir start || fail "the weights at the start"
exactly_once uneven 3:7:1:0
exactly_once fewer 2:16:1:7 1:16:1:0
exactly_once more 2:16:1:7 3:16:1:0
exactly_once all 3:16:2:4 1:5:3:9 4:64:1:10 2:3:1:0

# The order of the samples must be the same within an epoch.
part order 2 16 1 5
refused 64 'saved within an epoch.*--seed was 1, not 2' "${options[@]}" --run-dir order --seed 2
refused 64 'saved within an epoch.*the data has changed' "${options[@]}" --run-dir order --data other.h5
part order 2 16 1 0
train 2 "${options[@]}" --run-dir order --seed 2 --data other.h5 --epochs 2 || fail "other data after an epoch"

# On fewer ranks, the state of the optimizer goes on: in the next step, the moments of inputs whose samples are over only decay. The
# learning rate is that of the new number of ranks, at the same place of its schedule.
schedule=("${options[@]}" --batch-size 16 --optimizer adamw --lr 0.001 --scale-lr on --warmup-steps 3 --schedule cosine --log-steps 1 --checkpoint-keep 9)
train 2 "${schedule[@]}" --checkpoint-every 7steps --run-dir state || fail "the run on 2 ranks"
for file in state/checkpoints/*.h5; do [[ $file == */step-00000007.h5 ]] || rm "$file"; done
train 1 "${schedule[@]}" --checkpoint-every 8steps --run-dir state || fail "the same run on 1 rank"
grep -q 'continuing from step 7' out || fail "it did not resume"
/usr/bin/python3 - <<'PYTHON' || fail "the state after a change of the ranks"
import json, math, h5py, numpy
before, after = (h5py.File(f"state/checkpoints/step-{step:08}.h5") for step in (7, 8))
assert (before.attrs["world_size"], after.attrs["world_size"]) == (2, 1)
for field, decay in (("exp_avg", 0.9), ("exp_avg_sq", 0.999)):
    old, new = (file["optimizer/state/fc1.weight/" + field][()] for file in (before, after))
    over = (old != 0).any(axis=0)
    assert over.sum() == 7 * 32 and (new != 0).any(axis=0).sum() == 7 * 32 + 16, (field, over.sum())
    assert numpy.allclose(new[:, over], decay * old[:, over], rtol=1e-5, atol=0), field
for name in before["optimizer/state"]:
    assert before[f"optimizer/state/{name}/step"][()] == 7 and after[f"optimizer/state/{name}/step"][()] == 8, name
def rate(step, ranks, total):
    top = 0.001 * ranks
    if step < 3: return 0.001 + (top - 0.001) * step / 3
    return top / 2 * (1 + math.cos(math.pi * (step - 3) / (total - 3)))
lines = [json.loads(line) for line in open("state/metrics.jsonl")]
found = {line["step"]: line["lr"] for line in lines if "lr" in line}
# 600 samples are 19 steps of 32 or 38 of 16, and 7 steps of 32 are 14 of 16.
expected = {step: rate(step - 1, 2, 19) if step <= 7 else rate(step - 1 + 7, 1, 38) for step in range(1, 7 + 24 + 1)}
assert found.keys() == expected.keys(), sorted(found)
assert all(math.isclose(found[step], expected[step], rel_tol=1e-9, abs_tol=1e-15) for step in found), (found, expected)
PYTHON
# If --steps ends the run, the schedule counts steps of any size.
train 2 "${schedule[@]}" --epochs 9 --steps 12 --checkpoint-every 7steps --run-dir steps || fail "the run on 2 ranks with --steps"
rm steps/checkpoints/step-00000012.h5
train 1 "${schedule[@]}" --epochs 9 --steps 12 --run-dir steps || fail "the same run on 1 rank"
/usr/bin/python3 - <<'PYTHON' || fail "the learning rate with --steps"
import json, math
found = {line["step"]: line["lr"] for line in map(json.loads, open("steps/metrics.jsonl")) if "lr" in line}
for step in range(1, 13):
    top = 0.001 * (2 if step <= 7 else 1)
    expected = 0.001 + (top - 0.001) * (step - 1) / 3 if step <= 3 else top / 2 * (1 + math.cos(math.pi * (step - 4) / 9))
    assert math.isclose(found[step], expected, rel_tol=1e-9), (step, found[step], expected)
PYTHON
