#!/usr/bin/env bash
# A table as people have it, in CSV: many columns of numbers, a column of texts with the classes, names, and gaps.
source "$(dirname "$0")/models.sh"
/usr/bin/python3 - <<'PYTHON' || fail "tables"
import csv, random
random.seed(1)
KINDS = ["setosa", "versicolor", "virginica, the last"]
def write(name, rows, kinds=KINDS, gaps=True):
    with open(name, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["id"] + [f"p{i}" for i in range(12)] + ["kind"])
        for row in range(rows):
            kind = row % len(kinds)
            values = [random.randrange(60) + (150 if i == kind else 0) + (0.5 if i % 2 else 0) for i in range(12)]
            if gaps and row % 50 == 3:
                values[5] = ""
            if gaps and row % 100 == 7:
                values[2] = values[5] = ""
            out.writerow([f"row {row}"] + values + [kinds[kind]])
write("train.csv", 1000)
write("test.csv", 300)
write("whole.csv", 30, gaps=False)
write("other.csv", 30, ["setosa", "rosa"], gaps=False)
PYTHON
features="[$(printf 'p%d,' {0..10})p11]"
fit=(--table train.csv --features "$features" --label kind --model small.pt --lr 0.05 --momentum 0.5 --nan skip --epochs 6)

timeout 300 farandole fit -np 2 --run-dir runs/texts --loss nll "${fit[@]}" >out 2>err || fail "fit"
grep -qx '30 of 1000 rows were left out because of a NaN (--nan skip), most of them because of column p5 (30 rows)' out || fail "no word of the rows that were left out"
[[ $(grep -c 'were left out' out) == 1 ]] || fail "it is said more than once"
python3 - <<'PYTHON' || fail "fit.json"
import json
fit = json.load(open("runs/texts/fit.json"))
assert fit["classes"] == {"kind": ["setosa", "versicolor", "virginica, the last"]}, fit["classes"]
assert fit["options"]["features"] == ["[" + ",".join(f"p{i}" for i in range(12)) + "]"]
PYTHON
timeout 300 farandole evaluate --run-dir runs/texts --table test.csv --format json >score.json 2>err || fail "evaluate"
for output in out.h5 out.csv; do
  timeout 300 farandole transform -n2 --run-dir runs/texts/ --table whole.csv --output $output --argmax >out 2>err || fail "transform to $output"
  [[ ! -s err ]] || fail "transform to $output complains"
done
/usr/bin/python3 - <<'PYTHON' || fail "the results"
import csv, json, h5py, numpy
score = json.load(open("score.json"))
assert score["rows"] == 291 and score["skipped"] == 9 and score["skipped_column"] == "p5", score
assert score["accuracy"] > 0.9 and score["classes"]["kind"][0] == "setosa", score
table = list(csv.DictReader(open("whole.csv")))
rows = list(csv.DictReader(open("out.csv")))
assert set(rows[0]) == set(table[0]) | {"kind__output_0", "kind__output_1", "kind__output_2", "kind__prediction"}, set(rows[0])
file = h5py.File("out.h5")
output = file["kind__output"][()]
names = json.loads(file["kind__output"].attrs["classes"])
assert names == ["setosa", "versicolor", "virginica, the last"], names
right = 0
for i, (before, after) in enumerate(zip(table, rows, strict=True)):
    assert before["id"] == after["id"] == file["id"][i].decode() and before["kind"] == after["kind"] == file["kind"][i].decode()
    assert float(before["p3"]) == float(after["p3"]) == file["p3"][i]
    assert numpy.array_equal(numpy.float32([after[f"kind__output_{k}"] for k in range(3)]), output[i])
    assert after["kind__prediction"] == names[output[i].argmax()] == file["kind__prediction"][i].decode()
    right += after["kind__prediction"] == after["kind"]
assert right > 27, right
PYTHON
# The folder of the output has no other files.
[[ -z $(find . -maxdepth 1 -name '.*.h5*') ]] || fail "left behind: $(ls -A)"

# More epochs continue with the same classes; those of another table are refused.
timeout 300 farandole fit -n 2 --store runs --run texts --loss nll "${fit[@]}" --epochs 7 >out 2>err && grep -q '^continuing' out || fail "it does not continue"
sed 's/versicolor/vulgaris/' train.csv >renamed.csv
check 64 'the classes of the labels in renamed.csv are not those with which run texts was trained; .*--run$' \
  fit -n 2 --run-dir runs/texts --loss nll "${fit[@]}" --epochs 8 --table renamed.csv
check 64 "other.csv: column kind has the class 'rosa' in row 1, with which the model was not trained; its classes are setosa, versicolor, " \
  evaluate --run-dir runs/texts --table other.csv
refuse 64 'column kind has 2 classes \(rosa, setosa\), and small.pt returns 3 outputs for each row' --store runs --loss nll "${fit[@]}" --table other.csv
refuse 64 'column kind of train.csv holds texts, .*--loss mse compares numbers' --store runs --loss mse "${fit[@]}"
refuse 64 "'\[p0' has one bracket" --loss nll "${fit[@]}" --features '[p0'
all_refused 1
check 64 '^farandole transform: --output out.txt: .*use .h5, .csv' transform --run-dir runs/texts --table whole.csv --output out.txt
check 64 'a NumPy file has one column' transform --run-dir runs/texts --table whole.csv --output out.npy
check 64 'is instead of --store and --run' transform --run-dir runs/texts --run texts --table whole.csv --output out.h5
# Only the options are checked.
timeout 300 farandole fit --check --loss nll "${fit[@]}" --table nowhere.csv >out 2>err && [[ ! -s out && ! -s err ]] || fail "--check"
check 64 'loss-weights' fit --check --loss nll "${fit[@]}" --loss-weights x
[[ $(ls runs) == texts ]] || fail "left behind: $(ls runs)"
