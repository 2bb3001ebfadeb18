#!/usr/bin/env bash
# fit, transform, evaluate and runs on tables and models of users: learning, resuming, results that Python reads.
source "$(dirname "$0")/models.sh"
/usr/bin/python3 - <<'PYTHON' || fail "tables"
import h5py, numpy
random = numpy.random.default_rng(1)
def write(name, rows):
    digit = random.integers(0, 3, rows)
    pixels = random.integers(0, 60, (rows, 3, 4), dtype="u1")
    for label in range(3):
        pixels[digit == label, label] += 150
    with h5py.File(name, "w") as file:
        file["pixels"], file["digit"] = pixels, digit.astype("i2")
        file["name"] = [f"row {i}" for i in range(rows)]
        file["weight"] = random.uniform(0.5, 1.5, rows).astype("f4")
        file["held"] = (numpy.arange(rows) % 10 == 0)
        file["total"] = pixels.sum((1, 2)) / 1000
        file["pair"] = numpy.random.default_rng(7).normal((0, 1000), size=(rows, 2)).astype("f4")
write("train.h5", 1501)
write("test.h5", 301)
with h5py.File("ids.h5", "w") as file:
    file["id"], file["zero"] = numpy.arange(60000), numpy.zeros(60000, "f4")
x, y = random.normal(size=(2, 1000))
with open("line.csv", "w") as file:
    print("x,y,z,id", file=file)
    for i, (a, b) in enumerate(zip(x, y)):
        print(f"{a},{b},{3 * a - 2 * b + 1},{i}", file=file)
PYTHON

classify=(--table train.h5 --features pixels --label digit --model small.pt --loss nll --optimizer sgd --lr 0.05 --momentum 0.5 --batch-size 32)

# The fits on 1 rank, of which the checks follow: all kinds of labels, rows that are skipped, early stopping, and half of the
# optimizers and schedules.
printf '%s\n' x,y,z 1,2,3 2,1,-1 >good.csv
printf '%s\n' x,y,z 1,2,3 ,5,5 2,1,-1 5,,5 >gaps.csv
nan="--features x,y --label z --model line.pt --loss mse --lr 0.01 --epochs 1 --nan skip --shuffle false"
line="--table line.csv --features x,y --label z --model line.pt --loss mse"
lbfgs="$line --optimizer lbfgs --lr 0.01 --batch-size 500"
patience="${classify[*]} --run patience --epochs 50 --validation 0.1 --patience 1 --lr 1e-9 --scale-lr false --train-steps 1 --validation-steps 2"
fits=("${classify[*]} --run on-1 --epochs 4 --validation 0.1"
  "--table train.h5 --features pixels --label pair --model wide.pt --loss mse --lr 0.001 --epochs 1 --run pair"
  "--table good.csv $nan --batch-size 2 --run good" "--table gaps.csv $nan --batch-size 4 --run gaps"
  "$line --optimizer adam --schedule one_cycle --lr 0.05 --epochs 3 --batch-size 50 --run adam"
  "$line --optimizer rmsprop --schedule polynomial --lr 0.05 --epochs 3 --batch-size 50 --run rmsprop"
  "$patience" "$lbfgs --epochs 4 --run lbfgs-4" "$lbfgs --epochs 2 --run lbfgs-2"
  "$line --optimizer lbfgs --lr 0.05 --epochs 3 --batch-size 50 --run lbfgs")
many 1 "${fits[@]/#/--store runs }" || fail "fits on 1 rank"
grep -qE '^epoch 4 .*validation loss 0\.[0-4].*accuracy (1\.0|0\.9)' out || fail "a fit on 1 rank learns nothing"
tail -n 8 out | grep -qE '^epoch 3 .* loss 0\.00' || fail "L-BFGS does not solve a linear problem"
[[ $(grep -cE '^ +0  [^ ]+ +[0-9]+ +[1-9][0-9]* +[0-9.]+ +[0-9.]+$' out) == "${#fits[@]}" ]] || fail "there is no table of what ranks use"
grep -qE '"cpu_percent":\[[0-9.]+\],"memory_mib":\[[0-9.]+\]' runs/on-1/metrics.jsonl || fail "metrics.jsonl"
# On 2 ranks, of which rank 0 has a GPU, as its driver's library says: what is validated on is not trained on; two labels, each with
# a loss and metrics; a column that chooses the rows to validate on, weights, accumulation, limits of the gradients, 16
# bits; a loss that is a script.
fits=("${classify[*]} --run on-2 --epochs 4 --validation 0.1"
  "--table train.h5 --features pixels --label digit,total --model two.pt --loss nll,mse --loss-weights 1,0.5 --lr 0.1 --batch-size 32
    --epochs 3 --validation 0.1 --metrics accuracy,f1,mae --run two"
  "--table gaps.csv $nan --batch-size 2 --scale-lr false --run gaps-2"
  "${classify[*]} --run column --epochs 2 --validation-column held --sample-weight weight --accumulate 2 --warmup-steps 5 --schedule cosine
    --best --clip-norm 1 --precision bfloat16 --on-nonfinite skip --checkpoint-every 10steps"
  "$line --optimizer adamw --schedule step --lr 0.05 --epochs 3 --batch-size 50 --run adamw"
  "$line --optimizer adagrad --lr 0.05 --epochs 3 --batch-size 50 --run adagrad"
  "$line --loss loss.pt --lr 0.1 --epochs 1 --run script"
  "${classify[*]} --epochs 20 --checkpoint-every 10steps --metrics accuracy --seed 3 --run whole")
LD_LIBRARY_PATH=$bin/../tests/double${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_VISIBLE_DEVICES=0,7 many 2 "${fits[@]/#/--store runs }" ||
  fail "fits on 2 ranks"
grep -qE '^epoch 4 .*validation loss 0\.[0-4].*accuracy (1\.0|0\.9)' out || fail "a fit on 2 ranks learns nothing"
grep -q '1501 rows, 150 of them for validation' out || fail "the split on 2 ranks"
grep -qE '^ +0 .* 97 +30720$' out && grep -qE '^ +1 .* - +-$' out || fail "the table lacks the GPU"
grep -qF '"gpu_percent":[97.0,null],"gpu_memory_mib":[30720.0,null]' runs/on-2/metrics.jsonl || fail "metrics.jsonl lacks the GPU"
grep -qE '^epoch 3 .* training digit__accuracy (1\.0|0\.9).*validation loss.* digit__f1 (1\.0|0\.9).* total__mae 0\.' out || fail "metrics of two labels"
grep -q '"eval_digit__f1":.*"train_total__mae":' runs/two/metrics.jsonl || fail "metrics.jsonl of two labels"
grep -q '151 of them for validation' out || fail "validation column: other rows"

# All ranks use the model that rank 0 has chosen; all columns stay.
own_run='runs=(on-2 pair); exec farandole "$@" --run ${runs[OMPI_COMM_WORLD_RANK]} --table test.h5'
timeout 300 farandole run -n 2 -- bash -c "$own_run" - transform --store runs --output out.h5 --argmax >out 2>err || fail "transform"
timeout 300 farandole evaluate -n 2 --store runs --run on-2 --table test.h5 --format json >score.json 2>err || fail "evaluate"
/usr/bin/python3 - <<'PYTHON' || fail "what transform and evaluate have written"
import h5py, json, numpy
test, state = h5py.File("test.h5"), h5py.File("runs/on-2/state.h5")
assert set(state) == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "calls"}, set(state)
assert state["calls"][()] > 0
hidden = numpy.maximum(test["pixels"][()].reshape(301, 12) / 255 @ state["fc1.weight"][()].T + state["fc1.bias"][()], 0)
logits = hidden @ state["fc2.weight"][()].T + state["fc2.bias"][()]
expected = logits - numpy.log(numpy.exp(logits).sum(1, keepdims=True))
out = h5py.File("out.h5")
assert set(out) == set(test) | {"digit__output", "digit__prediction"}, set(out)
for column in test:
    assert numpy.array_equal(out[column][()], test[column][()]), column
assert numpy.allclose(out["digit__output"][()], expected, atol=1e-4)
assert numpy.array_equal(out["digit__prediction"][()], out["digit__output"][()].argmax(1))
score = json.load(open("score.json"))
truth, guess = test["digit"][()], expected.argmax(1)
assert score["rows"] == 301
assert abs(score["accuracy"] - (truth == guess).mean()) < 1e-9
assert abs(score["log_loss"] + expected[numpy.arange(301), truth].mean()) < 1e-4
assert abs(score["loss"] - score["log_loss"]) < 1e-4
assert score["confusion"]["digit"] == [[int(((truth == t) & (guess == g)).sum()) for g in range(3)] for t in range(3)]
PYTHON

# Two labels.
timeout 300 farandole transform --store runs --run two --table test.h5 --output two.h5 --argmax >out 2>err || fail "transform of two labels"
timeout 300 farandole evaluate --store runs --run two --table test.h5 --metrics total__bias=bias.pt --format json >score.json 2>err || fail "evaluate of two labels"
/usr/bin/python3 - <<'PYTHON' || fail "the scores of two labels"
import h5py, json, numpy
out, score = h5py.File("two.h5"), json.load(open("score.json"))
truth, guess, total, error = out["digit"][()], out["digit__prediction"][()], out["total"][()], out["total__output"][()].ravel() - out["total"][()]
assert "total__prediction" not in out
hits = [numpy.sum((truth == k) & (guess == k)) for k in range(3)]
precision = [h / max(numpy.sum(guess == k), 1) for k, h in enumerate(hits)]
recall = [h / max(numpy.sum(truth == k), 1) for k, h in enumerate(hits)]
f1 = [2 * p * r / (p + r) for p, r in zip(precision, recall)]
log_loss = -out["digit__output"][()][numpy.arange(301), truth].mean()
for name, value in {"digit__accuracy": (truth == guess).mean(), "digit__precision": numpy.mean(precision), "digit__recall": numpy.mean(recall),
                    "digit__f1": numpy.mean(f1), "digit__log_loss": log_loss, "total__mae": abs(error).mean(), "total__bias": error.mean(),
                    "total__rmse": (error ** 2).mean() ** 0.5, "loss": log_loss + 0.5 * (error ** 2).mean()}.items():
    assert abs(score[name] - value) < 1e-4, (name, score[name], value)
assert sum(map(sum, score["confusion"]["digit"])) == 301
PYTHON

# R2 of several values in a row is the mean of theirs, as in scikit-learn.
timeout 300 farandole evaluate --store runs --run pair --table test.h5 --format json >score.json 2>err || fail "evaluate of two values"
/usr/bin/python3 - <<'PYTHON' || fail "the scores of two values in a row"
import h5py, json, numpy
state, test, score = h5py.File("runs/pair/state.h5"), h5py.File("test.h5"), json.load(open("score.json"))
label = test["pair"][()].astype("f8")
error = test["pixels"][()].reshape(301, 12) / 255 @ state["fc.weight"][()].T + state["fc.bias"][()] - label
r2 = (1 - (error ** 2).sum(0) / ((label - label.mean(0)) ** 2).sum(0)).mean()
assert abs(score["r2"] / r2 - 1) < 1e-3, (score["r2"], r2)
assert abs(score["mae"] / abs(error).mean() - 1) < 1e-4
PYTHON

# A table with a column of text that is joined with another one: the text stays.
/usr/bin/python3 -c 'import h5py; h5py.File("extra.h5", "w")["extra"] = range(301)'
timeout 300 farandole transform --store runs --run pair --table test.h5,extra.h5 --output joined.h5 >out 2>err || fail "transform of joined tables"
/usr/bin/python3 -c 'import h5py; a, b = (h5py.File(name)["name"][()] for name in ("test.h5", "joined.h5")); assert (a == b.astype(object)).all()' ||
  fail "the texts are lost"

# A stop during a validation, which may be long, saves what was trained. The next start only validates.
/usr/bin/python3 - <<'PYTHON' || fail "a table for a long validation"
import h5py, numpy
with h5py.File("wide.h5", "w") as file:
    for name in "x", "y", "z":
        file[name] = numpy.zeros(40000, "f4")
PYTHON
long=(fit -n 2 --store runs --table wide.h5 --features x,y --label z --model line.pt --loss mse --epochs 1 --validation 0.99 --validation-batch-size 1
  --train-steps 1 --run stopped)
rm -f out
farandole "${long[@]}" >out 2>err & # timeout would pass the signal on twice
launcher=$!
is_trained() { grep -qs '"step":1,' runs/stopped/metrics.jsonl; }
await "the fit ended before it validated" is_trained
kill -TERM "$launcher"
wait "$launcher"
[[ $? == 75 ]] && ! grep -q '^epoch 1' out || fail "a stop during the validation"
steps=$(sed -n 's/^stop requested: saved at step \([0-9]*\) .*/\1/p' out)
timeout 200 farandole "${long[@]}" >out 2>err || fail "the validation after a stop"
grep -q "^continuing from step $steps " out && grep -q "^epoch 1  step $steps .*validation loss" out || fail "the next start does not only validate"

# Rows that are skipped count nowhere: not in the loss, not in the gradient.
/usr/bin/python3 - <<'PYTHON' || fail "skipped rows change the training"
import h5py, json, numpy
good = h5py.File("runs/good/state.h5")
for run in "gaps", "gaps-2":
    state = h5py.File(f"runs/{run}/state.h5")
    assert all(numpy.allclose(good[name][()], state[name][()], rtol=1e-5) for name in good), run
    losses = [json.load(open(f"runs/{name}/fit.json"))["history"][0]["loss"] for name in ("good", run)]
    assert abs(losses[0] / losses[1] - 1) < 1e-5, losses
PYTHON

timeout 300 farandole evaluate --store runs --run lbfgs --table line.csv >out 2>err && grep -qE '^r2 +(1|0\.99)' out || fail "evaluation of a regression"

# runs
farandole runs list --store runs >out 2>err || fail "runs list"
grep -qE '^on-2 +finished +4 +0\.' out || fail "runs list lacks a run"
farandole runs show --store runs on-2 >out 2>err && [[ $(grep -c '^epoch' out) == 4 ]] || fail "runs show"
[[ $(farandole runs best --store runs) == lbfgs ]] || fail "runs best: $(farandole runs best --store runs)"

# More epochs continue, with the state of L-BFGS as well; the same command on a fit that has stopped early does nothing more.
(($(grep -c '"epoch"' runs/patience/fit.json) < 50)) || fail "early stopping does not stop"
cp runs/patience/state.h5 patience.h5
fits=("${classify[*]} --run on-1 --epochs 6 --validation 0.1" "$lbfgs --epochs 4 --run lbfgs-2" "$patience")
many 1 "${fits[@]/#/--store runs }" || fail "more epochs"
[[ $(grep -c '^epoch' out) == 4 ]] || fail "more epochs do not continue, or a fit that has stopped early trains on"
[[ $(grep -c 'continuing from step' out) == 3 ]] || fail "more epochs begin anew"
/usr/bin/python3 - <<'PYTHON' || fail "a fit does not continue with its state"
import h5py, numpy
def equal(one, other):
    a, b = h5py.File(one), h5py.File(other)
    assert set(a) == set(b) and all(numpy.array_equal(a[name][()], b[name][()]) for name in a), (one, other)
    return a
equal("patience.h5", "runs/patience/state.h5")
assert abs(equal("runs/lbfgs-4/state.h5", "runs/lbfgs-2/state.h5")["fc.weight"][0, 0] - 3) > 1e-3
PYTHON

# A fit that was killed within an epoch resumes, and ends as one that was not.
whole=(fit -n 2 --store killed "${classify[@]}" --epochs 20 --checkpoint-every 10steps --metrics accuracy --seed 3)
killed killed/fit-0001 farandole "${whole[@]}"
timeout 200 farandole "${whole[@]}" >out 2>err || fail "the fit cannot be resumed"
grep -q 'continuing from step' out && [[ $(ls killed) == fit-0001 ]] || fail "the fit was not continued: $(ls killed)"
/usr/bin/python3 - <<'PYTHON' || fail "the resumed fit ends otherwise"
import json, h5py, numpy
runs = "runs/whole", "killed/fit-0001"
a, b = (h5py.File(f"{run}/state.h5") for run in runs)
for name in a:
    assert numpy.array_equal(a[name][()], b[name][()]), name
a, b = (json.load(open(f"{run}/fit.json"))["history"] for run in runs)
assert [epoch["training_metrics"] for epoch in a] == [epoch["training_metrics"] for epoch in b]
PYTHON
# With other ranks and another batch size, too, each row of the epoch is trained on once. A step on n rows changes the parameters of
# these rows by 1 / n.
ids=(--store runs --run ids --table ids.h5 --features id:int64 --label zero --model rows.pt --loss output.pt --lr 1 --scale-lr false --checkpoint-every 40steps)
killed runs/ids farandole fit -n 2 "${ids[@]}" --batch-size 4
timeout 200 farandole fit "${ids[@]}" --batch-size 21 >out 2>err || fail "a fit cannot be resumed on other ranks"
grep -q 'continuing from step' out || fail "a fit begins anew on other ranks"
/usr/bin/python3 - <<'PYTHON' || fail "a row was lost or doubled on other ranks"
import h5py, numpy
seen = -h5py.File("runs/ids/state.h5")["seen"][()].astype("f8")
rows = numpy.round(1 / seen)
assert numpy.allclose(1 / seen, rows, rtol=1e-5), "a row was trained on twice"
sizes, counts = numpy.unique(rows, return_counts=True)
assert {8, 21} <= set(sizes) and len(sizes) <= 3 and not (counts % sizes).any(), (sizes, counts)
PYTHON
# Its run directory is as that of any training.
farandole analyze runs/whole >out 2>err || fail "analyze"
