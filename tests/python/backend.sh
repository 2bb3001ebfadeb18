#!/usr/bin/env bash
# The backend "farandole" of torch.distributed: its functions against Gloo, training against one process, and jobs that
# cannot go on.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
export PYTHONPATH=$FARANDOLE_SOURCE/src/farandole/python:$PYTHONPATH FARANDOLE_LIBRARY=$bin/../lib/libfarandole_c.so
program=$(dirname "${BASH_SOURCE[0]}")/backend.py
job() { timeout 600 "$bin/farandole" run -n "$1" -- /usr/bin/python3 -W ignore "$program" "${@:2}"; }

expect 0 job 3 collectives
[[ $(grep -c '^equal$' "$work/out") == 3 ]] || fail "collectives: $(<"$work/out")"
expect 0 job 2 training
[[ $(grep -c '^equal$' "$work/out") == 2 ]] || fail "training: $(<"$work/out")"

# Calls that differ, in a function of torch.distributed and in a backward pass that waits for a future.
for part in mismatch backward; do
  expect 64 job 2 "$part"
  says err 'the ranks make different calls of the same collective'
  says err 'size       rank 1 '
done
# A rank that ends while others wait for it in a backward pass.
expect 1 job 3 exception
says err 'ValueError: no more data'

# Processes that have no common job.
alone() {
  MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 RANK=$2 WORLD_SIZE=2 \
    timeout 600 /usr/bin/python3 -W ignore "$program" collectives
}
apart() {
  local port=$((20000 + $$ % 10000)) code=0
  alone $port 0 & alone $port 1
  code=$?
  wait $! || return $code
}
expect 1 apart
says err "torch.distributed has 2 ranks and Farandole's job has 1; start the script with farandole run -n 2"
exit $((failures > 0))
