#!/usr/bin/env bash
# The estimator's example on MNIST: 3 ranks end about as well as a single process on the whole batch does.
source "$(dirname "$0")/../trainer/common.sh"
need_data mnist
"$bin/export_models" || fail "models"
for part in train10k t10k; do
  "$bin/farandole" table split "pixels=$data/$part-images-idx3-ubyte.gz,digit=$data/$part-labels-idx1-ubyte.gz" --fractions 1 \
    --output $part.h5 >out 2>err || fail "the table $part"
done
timeout 250 "$bin/example_estimator" mnist.pt train10k.h5 t10k.h5 5 >out 2>err || fail "the example"
three=$(sed -n 's/^accuracy \([0-9.]*\) % of .* digits$/\1/p' out)
[[ ! -e predictions.h5 && -s runs/mnist/model.pt ]] || fail "the example does not clean up, or leaves no model"
timeout 250 "$bin/farandole" fit --store single --table train10k.h5 --features pixels --input-shapes 1,28,28 --label digit --model mnist.pt \
  --loss nll --optimizer sgd --lr 0.03 --momentum 0.5 --batch-size 384 --epochs 5 --validation 0.1 >out 2>err || fail "a single process"
timeout 300 "$bin/farandole" evaluate --store single --table t10k.h5 --format json >score.json 2>err || fail "evaluate"
/usr/bin/python3 - "$three" <<'PYTHON' || fail "3 ranks: $three %, a single process: $(<score.json)"
import json
import sys
three, single = float(sys.argv[1]), 100 * json.load(open("score.json"))["accuracy"]
print(f"3 ranks {three:.2f} %, single process {single:.2f} %")
assert three > 80 and abs(three - single) < 2
PYTHON
