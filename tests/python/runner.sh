#!/usr/bin/env bash
# Functions that a driver in Python calls on ranks: values, failures, an interrupted driver, and the names of Horovod and
# Spark. Then the example of TorchDistributor.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
/usr/bin/python3 -c 'import cloudpickle' 2>/dev/null || { echo "skipped: no Python here has cloudpickle"; exit 77; }
export FARANDOLE_PYTHON=/usr/bin/python3 FARANDOLE_LIBRARY=$bin/../lib/libfarandole_c.so FARANDOLE_RUNS=$work/runs
here=$(dirname "${BASH_SOURCE[0]}")
drive() { timeout 600 "$bin/farandole" python -W ignore "$@"; }

for part in values others failures interrupted trains "names $work/packages"; do
  # shellcheck disable=SC2086
  expect 0 drive "$here/runner.py" $part
done

data=$work/digits
/usr/bin/python3 "$here/digits.py" "$data" || fail "the data"
rm -rf "$work/runs"
example=$FARANDOLE_SOURCE/src/farandole/python/examples/torch_distributor.py
expect 0 drive "$example" "$data" --workers 2 --samples 512 --save "$work/model.pt"
says out '^epoch 10: loss 0\.'
says out '^accuracy on 500 test samples: ([789][0-9]|100)\.'
run=("$work"/runs/*)
[[ -s $run/run.json && $(grep -c ' epoch ' "$run"/logs/rank-0000.log) == 10 ]] || fail "the run is not recorded: $(ls -R "$run")"
expect 0 "$bin/farandole" analyze "$run"
says out '^2 ranks train .* samples/s'
says out '80 steps|75 steps'
exit $((failures > 0))
