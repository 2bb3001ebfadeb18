#!/usr/bin/env bash
# Real digits: 10 epochs on 2 ranks with the profile mnist reach 94.5 % on the test set.
source "$(dirname "$0")/common.sh"
need_data mnist
train 2 --profile mnist --data "$data" --run-dir run || fail "training"
/usr/bin/python3 - <<'PYTHON' || fail "accuracy"
import json
accuracies = [json.loads(line).get("eval_accuracy") for line in open("run/metrics.jsonl")]
accuracies = [a for a in accuracies if a is not None]
print(accuracies)
assert len(accuracies) == 10 and accuracies[-1] >= 0.945, accuracies
PYTHON
