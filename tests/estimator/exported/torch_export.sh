#!/usr/bin/env bash
# Models that torch.export writes are fitted, and give the losses that PyTorch gives; PyTorch reads and continues the results.
source "$FARANDOLE_SOURCE/tests/estimator/models.sh"
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python || { echo "skipped: PyTorch cannot be imported from the wheel in .deps"; exit 77; }
export PYTHONPATH=$PYTHONPATH:$FARANDOLE_SOURCE/tests/estimator/exported PYTHONDONTWRITEBYTECODE=1
python() { timeout 600 /usr/bin/python3 -W ignore "$FARANDOLE_SOURCE/tests/estimator/exported/torch_export.py" "$@" 2>err; }
python export || fail "export"
names=(*-held.h5)
names=("${names[@]%-held.h5}")

# line NAME RANKS OPTION...: a command line of fit whose result the script in Python knows
line() {
  local name=$1 ranks=$2
  shift 2
  echo "--store runs --table $name.h5 $(<"$name.options") --lr 0.0625 --scale-lr false --momentum 0.5 --batch-size $((32 / ranks))" \
    "--shuffle false --validation-column held --verbose 0 $*"
}
lines=()
for name in "${names[@]}"; do lines+=("$(line "$name" 1 --run "$name-1" --model "$name.pt2" --eval-model "$name-eval.pt2" --epochs 3)"); done
for name in "${names[@]}"; do lines+=("$(line "$name" 1 --run "$name-again" --model "runs/$name-1/model.pt2" --epochs 1)"); done
# Both programs in one archive, in any order; a loss and a metric of torch.export.
lines+=("$(line cnn 1 --run both --model both.pt2 --epochs 3)" "$(line cnn 1 --run order --model cnn-eval.pt2 --eval-model cnn.pt2 --epochs 3)"
  "$(line mlp 1 --run loss --model mlp.pt2 --epochs 3 --metrics mine=loss.pt2 | sed 's/--loss cross_entropy/--loss loss.pt2/')")
# A fit that is continued ends with the same numbers.
lines+=("$(line cnn 1 --run parts --model cnn.pt2 --eval-model cnn-eval.pt2 --epochs 2)"
  "$(line cnn 1 --run parts --model cnn.pt2 --eval-model cnn-eval.pt2 --epochs 3)")
many 1 "${lines[@]}" || fail "fits on 1 rank"
lines=()
for name in cnn gpt two fourier; do lines+=("$(line "$name" 2 --run "$name-2" --model "$name.pt2" --eval-model "$name-eval.pt2" --epochs 3)"); done
many 2 "${lines[@]}" || fail "fits on 2 ranks"
python compare || fail "PyTorch trains otherwise"
/usr/bin/python3 - <<'PYTHON' || fail "both programs in one archive, a loss of torch.export, or a fit that is continued trains otherwise"
import json
def history(run):
    return json.load(open(f"runs/{run}/fit.json"))["history"]
for one, other in (("both", "cnn-1"), ("order", "cnn-1"), ("parts", "cnn-1"), ("loss", "mlp-1")):
    losses, expected = ([loss for e in history(run) for loss in (e["loss"], e["validation_loss"])] for run in (one, other))
    # The mean of the losses of rows is not rounded as PyTorch's mean loss.
    assert all(abs(a - b) < 1e-6 for a, b in zip(losses, expected)) if one == "loss" else losses == expected, one
assert all(abs(e["metrics"]["mine"] - e["validation_loss"]) < 1e-6 for e in history("loss"))
PYTHON

# The published model alone is evaluated and applied.
timeout 300 farandole evaluate -n 2 --store runs --run cnn-1 --table cnn-held.h5 --format json >score.json 2>err || fail "evaluate"
timeout 300 farandole transform --store runs --run two-1 --table two-held.h5 --output two-out.h5 >out 2>err || fail "transform"
/usr/bin/python3 - <<'PYTHON' || fail "the validation loss is not that of the model"
import json, h5py
last = json.load(open("runs/cnn-1/fit.json"))["history"][-1]
score = json.load(open("score.json"))
assert abs(last["validation_loss"] - score["loss"]) < 1e-6 and last["metrics"]["accuracy"] == score["accuracy"], (last, score)
assert h5py.File("two-out.h5")["value__output"].shape == (10, 1)
PYTHON

# What cannot be trained is refused with the line of Python that mends it.
mlp=(--store other --table mlp.h5 --features x --label digit)
dynamic='dynamic_shapes=\(\{0: torch.export.Dim.DYNAMIC\},\)'
refuse 64 "fixed.pt2 cannot be used: its input input has shape float32 \[4, 12\], .*$dynamic" "${mlp[@]}" --model fixed.pt2
refuse 64 'dictionary.pt2 returns 3 tensors \(logits, hidden.first, hidden.last\) for 1 label; name a column .*--loss-weights 1,0' "${mlp[@]}" --model dictionary.pt2
refuse 64 'with-loss.pt2 returns 2 tensors \(loss, logits\) for 1 label; loss is a single number, .* leave the labels out of its inputs' \
  "${mlp[@]}" --features x,digit:int64 --model with-loss.pt2
refuse 64 "branch.pt2 holds for inputs with .*size\(\)\[0\] <=? [0-9]+ only, and gets 32 rows; .*torch.cond" "${mlp[@]}" --model branch.pt2
refuse 64 'custom.pt2 cannot be used: it needs torch.ops.mine.twice.default, which this LibTorch cannot run' "${mlp[@]}" --model custom.pt2
refuse 64 "cnn.pt2 cannot be used: it has only the program for training, and aten.dropout differs in evaluation; .*net.eval\(\), example, $dynamic.*--eval-model" "${mlp[@]}" --model cnn.pt2
refuse 64 'only the program for evaluation, .*net.train\(\)' "${mlp[@]}" --model cnn-eval.pt2
refuse 64 'both programs .*cnn.pt2 and cnn.pt2.* are for training' "${mlp[@]}" --model cnn.pt2 --eval-model cnn.pt2
refuse 64 'there are 3 programs' "${mlp[@]}" --model both.pt2 --eval-model cnn.pt2
refuse 64 'both.pt2 takes input float32 \[rows, 3, 16, 16\], and gets float32 \[32, 12\]; choose other --features' "${mlp[@]}" --model both.pt2
refuse 64 'gpt.pt2 takes tokens int64 \[rows, 8\], and gets float32 .*:int64' "${mlp[@]}" --model gpt.pt2 --eval-model gpt-eval.pt2
refuse 64 '--eval-model is for models of torch.export, and net.pt is none' "${mlp[@]}" --model net.pt --eval-model cnn-eval.pt2
refuse 64 'traced.pt was traced in training mode, so its (dropout|batch_norm|feature_dropout) would train in evaluation' "${mlp[@]}" --model traced.pt
refuse 64 'loss.pt2 .*float32 \[rows, 3\]|a loss or a metric is one program of output and label' "${mlp[@]}" --model mlp.pt2 --loss cnn.pt2
/usr/bin/python3 - <<'PYTHON' || fail "other archives"
import zipfile
def changed(name, **records):
    with zipfile.ZipFile("mlp.pt2") as old, zipfile.ZipFile(name, "w") as new:
        for record in old.namelist():
            new.writestr(record, records.get(record.rpartition("/")[2], old.read(record)))
changed("big.pt2", byteorder=b"big")
changed("later.pt2", archive_version=b"1")
whole = open("mlp.pt2", "rb").read()
open("half.pt2", "wb").write(whole[:len(whole) // 2])
PYTHON
refuse 64 'big.pt2 cannot be used: it was written on a big-endian machine' "${mlp[@]}" --model big.pt2
refuse 64 'later.pt2 cannot be used: it is an archive of version 1' "${mlp[@]}" --model later.pt2
refuse 65 'half.pt2 is damaged: .*torch.export.save\(program, FILE\)' "${mlp[@]}" --model half.pt2
all_refused 1
[[ ! -e other ]] || fail "left behind: $(ls other)"

timeout 60 farandole model show cnn.pt2 cnn-eval.pt2 >out 2>err || fail "model show"
for line in 'program     model, for training, by PyTorch 2' 'program     model, for evaluation' 'inputs      input float32 \[rows, 3, 16, 16\]' \
  'outputs     float32 \[rows, 3\]' 'operators   .*aten.batch_norm.default' 'missing     none' \
  'parameters  1419 numbers in 6 tensors, 1419 of them are trained' 'buffers     3' 'trained by  farandole fit --model cnn.pt2 --eval-model cnn-eval.pt2'; do
  grep -qE "^$line" out || fail "model show lacks '$line'"
done
timeout 60 farandole model show custom.pt2 >out 2>err || fail "model show with an operator that is missing"
grep -q '^missing     torch.ops.mine.twice.default' out && grep -q '^not trained custom.pt2 cannot be used' out || fail "the missing operator is not named"
timeout 60 farandole model show script.pt >out 2>err || fail "model show of TorchScript"
grep -q '^model       script.pt, in TorchScript' out && grep -q '^operators   .*aten.batch_norm' out || fail "TorchScript is not shown"
timeout 60 farandole model show dictionary.pt2 >out 2>err || fail "model show of a dictionary"
grep -q '^outputs     logits float32 \[rows, 3\], hidden.first float32' out || fail "the outputs are not named"
check 65 'half.pt2 is damaged' model show half.pt2
