#!/usr/bin/env bash
# hvd.DistributedOptimizer against one process and against DDP on Gloo, a model that differs on one rank, the examples
# with this optimizer and with averaged weights, and their reports.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
here=$(dirname "${BASH_SOURCE[0]}")
export PYTHONPATH=$FARANDOLE_SOURCE/tests/compare:$PYTHONPATH FARANDOLE_LIBRARY=$bin/../lib/libfarandole_c.so
export FARANDOLE_PYTHON=/usr/bin/python3 FARANDOLE_RUNS=$work/runs OMP_NUM_THREADS=1
job() { timeout 600 "$bin/farandole" run -n "$1" "${@:2}"; }
rank() { job "$1" -- /usr/bin/python3 -W ignore "$here/hvd_optimizer.py" "${@:2}"; }

expect 0 rank 3 behaviour
[[ $(grep -c '^equal$' "$work/out") == 3 ]] || fail "behaviour: $(<"$work/out")"
# A model that differs on one rank.
expect 64 rank 2 against_ddp mismatch
[[ $(grep -c '^equal$' "$work/out") == 2 ]] || fail "against DDP: $(<"$work/out")"
says err 'rank 1 +weight float32 \[5, 8\]'
[[ $(grep -c 'Error: the ranks do not train the same tensors' "$work/err") == 1 ]] || fail "$(<"$work/err")"

data=$work/digits
/usr/bin/python3 "$here/../digits.py" "$data" || fail "the data"
examples=$FARANDOLE_SOURCE/src/farandole/python/examples
# example NAME RANKS COMMAND...: trains for two epochs.
example() {
  expect 0 "${@:3}" "$data" --epochs 2 --samples 384 --save "$work/$1-$2.pt"
  says out '^epoch 2: loss '
  says out '^accuracy on 500 test samples: ([5-9][0-9]|100)\.'
}
example averaged_weights 2 job 2 --horovod -- /usr/bin/python3 "$examples/averaged_weights.py"
if /usr/bin/python3 -c 'import cloudpickle' 2>/dev/null; then
  example horovod_runner 2 timeout 600 "$bin/farandole" python "$examples/horovod_runner.py" --np 2
else
  echo "skipped: HorovodRunner, without cloudpickle"
fi
shopt -s nullglob
for run in "$work"/runs/*; do  # of HorovodRunner
  expect 0 "$bin/farandole" analyze "$run" --format json -o "$work/run.json"
  expect 0 /usr/bin/python3 "$here/../expect_run.py" "$work/run.json" "$run" 6 0.9 \
    data\>0 forward\>0 backward\>0 optimizer\>0 wait\>0 'bucket 0:allreduce' loss:allreduce
  grep -q '"global_batch": 128' "$run/run.json" || fail "run.json: $(<"$run/run.json")"
done
exit $((failures > 0))
