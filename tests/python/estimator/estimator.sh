#!/usr/bin/env bash
# TorchEstimator on ranks against one process, its rows, what it refuses, and a run that continues after a kill.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
for package in pandas pyarrow cloudpickle; do
  /usr/bin/python3 -c "import $package" 2>/dev/null || { echo "skipped: Python here has no $package"; exit 77; }
done
export PYTHONPATH=$FARANDOLE_SOURCE/src/farandole/python:$PYTHONPATH FARANDOLE_LIBRARY=${FARANDOLE_LIBRARY:-$bin/../lib/libfarandole_c.so}
export FARANDOLE_PROGRAM=${FARANDOLE_PROGRAM:-$bin/farandole}
program=$(dirname "${BASH_SOURCE[0]}")/estimator.py
mkdir "$work/driver"
expect 0 timeout 600 "$FARANDOLE_PROGRAM" run -n 2 -- /usr/bin/python3 -W ignore "$program" cases "$work/ranks"
says out '^equal$'
grep '^not tried' "$work/err"
expect 0 "$bin/farandole" runs list --store "$work/ranks/store"
says out '^nan +finished +1 '

expect 0 timeout 600 /usr/bin/python3 -W ignore "$program" driver "$work/driver"
says out '^equal$'
says out '^epoch 4 of 4: loss [0-9.]+, validation loss [0-9.]+, '
expect 0 "$bin/farandole" runs list --store "$work/driver/store"
says out '^killed +finished +4 +[0-9.]+ +Noisy$'
says out '^undisturbed +finished +4 '
[[ $(grep -c '"validation_loss":' "$work/driver/store/killed/metrics.jsonl") == 4 ]] || fail "metrics: $(<"$work/driver/store/killed/metrics.jsonl")"
grep -q '"global_batch": 16' "$work/driver/store/undisturbed/run.json" || fail "run.json: $(<"$work/driver/store/undisturbed/run.json")"
expect 0 "$bin/farandole" analyze "$work/driver/store/undisturbed"
for phase in data forward backward optimizer evaluation; do says out "$phase"; done
[[ -z $(find "$work/driver" -name 'intermediate*') ]] || fail "a table was left in the store"
exit $((failures > 0))
