#!/usr/bin/env bash
# Steps, global batch, rate and phases of programs of Lightning, Transformers, Accelerate, DeepSpeed, timm and PyTorch Geometric
# are those of the framework.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset "${!SLURM_@}" "${!FARANDOLE_RUN_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
frameworks=$FARANDOLE_SOURCE/.deps/frameworks
[[ -d $frameworks/deepspeed ]] || { echo "skipped: tools/setup --frameworks was not called"; exit 77; }
export PYTHONPATH=$PYTHONPATH:$frameworks OMP_NUM_THREADS=1

# equal RANKS FRAMEWORK ACCUMULATE WORD...
equal() {
  local run=$work/$2-$1
  expect 0 timeout 600 "$bin/farandole" run -n "$1" --run-dir "$run" --trace-torch -- /usr/bin/python3 -W ignore "$here/frameworks.py" "$2" "$3" "$work/$2"
  ! grep farandole "$work/err" || fail "$2: the launcher or a rank complains"
  cp "$work/out" "$run/own"
  expect 0 "$bin/farandole" analyze "$run" --format json -o "$run.json"
  expect 0 /usr/bin/python3 "$here/../expect_run.py" "$run.json" "$run" "$(sed -n 's/^steps //p' "$run/own")" 0.95 forward\>0 backward\>0 \
    optimizer\>0 data\>0 evaluation\<0.2 other\<0.15 "${@:4}"
  expect 0 /usr/bin/python3 - "$run" <<'PYTHON'
import json
import sys

run = sys.argv[1]
own = {words[0]: [float(word) for word in words[1:]] for words in map(str.split, open(run + "/own")) if words[0] in ("batch", "ends")}
(report,) = json.load(open(run + ".json"))["runs"]
(batch,), ends, first = own["batch"], own["ends"], report["warmup_steps"]
assert json.load(open(run + "/run.json"))["global_batch"] == batch, f"not {batch}"
rate = batch * (len(ends) - first) / (ends[-1] - ends[first - 1])
assert abs(report["throughput_samples_per_s"] / rate - 1) < 0.05, f"{report['throughput_samples_per_s']} samples/s, not {rate}"
PYTHON
}
equal 1 lightning 1
equal 2 lightning 3 wait\>0
equal 1 hf 4
equal 2 hf 4 wait\>0
equal 1 accelerate 1
equal 2 accelerate 2 wait\>0
equal 1 deepspeed 1 evaluation\>0
equal 2 deepspeed 2 evaluation\>0 wait\>0 all_gather:all_gather
equal 1 timm 1 evaluation\>0
equal 2 timm 2 evaluation\>0 wait\>0
equal 1 pyg 2
equal 2 pyg 1 wait\>0
exit $((failures > 0))
