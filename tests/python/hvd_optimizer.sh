#!/usr/bin/env bash
# hvd.DistributedOptimizer: against one process and against DDP on Gloo, its report, a model that differs on one rank, and
# the examples of scripts that have an optimizer or average their weights.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python "$work/stand-ins" 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
here=$(dirname "${BASH_SOURCE[0]}")
export PYTHONPATH=$FARANDOLE_SOURCE/tests/compare:$PYTHONPATH FARANDOLE_LIBRARY=$bin/../lib/libfarandole_c.so
export FARANDOLE_PYTHON=/usr/bin/python3 FARANDOLE_RUNS=$work/runs OMP_NUM_THREADS=1
job() { timeout 600 "$bin/farandole" run -n "$1" "${@:2}"; }
rank() { job "$1" -- /usr/bin/python3 -W ignore "$here/hvd_optimizer.py" "${@:2}"; }

expect 0 rank 3 behaviour
[[ $(grep -c '^equal$' "$work/out") == 3 ]] || fail "behaviour: $(<"$work/out")"
expect 0 rank 2 against_ddp
[[ $(grep -c '^equal$' "$work/out") == 2 ]] || fail "against DDP: $(<"$work/out")"
expect 64 rank 3 mismatch
says err 'rank 1 +weight float32 \[5, 8\]'
[[ $(grep -c 'Error: the ranks do not train the same tensors' "$work/err") == 1 ]] || fail "more than one message: $(<"$work/err")"

expect 0 job 2 --run-dir "$work/run" --trace-torch -- /usr/bin/python3 -W ignore "$here/hvd_optimizer.py" recorded "$work"
steps=$(sed -n 's/^steps //p' "$work/out")
expect 0 "$bin/farandole" analyze "$work/run" --format json -o "$work/run.json"
expect 0 /usr/bin/python3 "$here/expect_run.py" "$work/run.json" "$work/run" "$steps" 0.95 data\>0 forward\>0 backward\>0 \
  optimizer\>0 wait\>0 evaluation\>0 checkpoint\>0 'bucket 0:allreduce' right:allreduce
grep -q '"global_batch": 64' "$work/run/run.json" || fail "run.json: $(<"$work/run/run.json")"

data=${FARANDOLE_TEST_DATA:-}/mnist
examples=$FARANDOLE_SOURCE/src/farandole/python/examples
# example NAME RANKS COMMAND...: it trains for two epochs, and its parameters are those of one process.
example() {
  expect 0 timeout 600 "${@:3}" "$data" --epochs 2 --samples 384 --save "$work/$1.pt"
  says out '^epoch 2: loss '
  says out '^accuracy on 10000 test samples: [5-9][0-9]\.'
  expect 0 timeout 600 "$bin/farandole" python "$here/hvd_examples.py" "$1" "$examples/$1.py" "$data" 384 "$2" 2 "$work/$1.pt"
}
if [[ -e $data/train10k-images-idx3-ubyte.gz ]]; then
  for ranks in 2 3; do
    example averaged_weights $ranks "$bin/farandole" run -n $ranks --horovod -- /usr/bin/python3 "$examples/averaged_weights.py"
    /usr/bin/python3 -c 'import cloudpickle' 2>/dev/null || { echo "skipped: HorovodRunner, without cloudpickle"; continue; }
    example horovod_runner $ranks "$bin/farandole" python "$examples/horovod_runner.py" --np $ranks
  done
fi
exit $((failures > 0))
