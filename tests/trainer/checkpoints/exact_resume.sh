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
  train "$2" "${options[@]}" --run-dir "$1" --batch "$3" --accumulate "$4" --steps "$5" || fail "$*"
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
exactly_once whole 2:16:1:0
exactly_once uneven 3:7:1:0
exactly_once fewer 2:16:1:7 1:16:1:0
exactly_once more 2:16:1:7 3:16:1:0
exactly_once larger 2:16:1:7 2:64:1:0
exactly_once all 3:16:2:4 1:5:3:9 4:64:1:10 2:3:1:0

# The order of the samples must be the same within an epoch.
part order 2 16 1 5
refused 64 'saved within an epoch.*--seed was 1, not 2' "${options[@]}" --run-dir order --seed 2
refused 64 'saved within an epoch.*the data has changed' "${options[@]}" --run-dir order --data other.h5
part order 2 16 1 0
train 2 "${options[@]}" --run-dir order --seed 2 --data other.h5 --epochs 2 || fail "other data after an epoch"
