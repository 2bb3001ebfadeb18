#!/usr/bin/env bash
# The calls of farandole.torch against numpy on 1 and 3 ranks, and jobs whose ranks make different calls.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
unset "${!SLURM_@}" MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null ||
  { echo "skipped: no Python here has the PyTorch of tools/setup"; exit 77; }
export FARANDOLE_LIBRARY=$bin/../lib/libfarandole_c.so
program=$(dirname "${BASH_SOURCE[0]}")/hvd_ops.py
job() {
  timeout 600 "$bin/farandole" run -n "$1" "${@:3}" -- /usr/bin/python3 -W ignore "$program" "$2" --seed $RANDOM
}

HOROVOD_TIMELINE=$work/timeline expect 0 job 1 everything --run-dir "$work/run"
says err '^farandole: HOROVOD_TIMELINE is not written; '
grep -q '"torch":' "$work/run/run.json" || fail "hvd.init() does not start the recording: $(<"$work/run/run.json")"
zgrep -q '"name":"shortened"' "$work/run/timeline.json.gz" || fail 'the timeline does not show the names of calls'
expect 0 job 3 everything
[[ $(grep -c '^equal$' "$work/out") == 3 ]] || fail "3 ranks: $(<"$work/out")"
expect 64 job 2 order
says err 'the ranks make different calls of the same collective'
says err "name       rank 0       'a'"
exit $((failures > 0))
