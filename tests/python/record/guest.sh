#!/usr/bin/env bash
# A PyTorch program that something else has started is recorded, ends as without us, and goes on where nothing can be recorded.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset "${!SLURM_@}" "${!FARANDOLE_RUN_@}" MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK FARANDOLE_LIBRARY
python=(/usr/bin/python3 -W ignore)
mkdir "$work/places" "$work/tmp"
cd "$work" || exit 1
record() { "$bin/farandole" record "$@"; }

expect 64 record
says err 'no command'
expect 64 record -- /none
says err 'cannot run /none'
expect 3 record --run-dir mine -- sh -c 'echo "$FARANDOLE_TRACE $FARANDOLE_RUN_DIR $1"; exit 3' - --help
says out "^1 $work/mine --help\$"
expect 0 env -C places PYTHONPATH="$bin/../lib/farandole/python" "${python[@]}" "$here/guest_places.py"
silent err

source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; ((failures)) && exit 1 || exit 77; }
# alike RUN OPERATION...: both ranks have recorded ten steps and give each collective the same number; rank 1 begins later.
alike() {
  expect 0 "$bin/farandole" timeline merge "$1"
  /usr/bin/python3 - "$1/timeline.json.gz" <<'PYTHON' || fail "the collectives of $1"
import gzip, json, sys
calls, steps = ({}, {}), (set(), set())
for event in json.load(gzip.open(sys.argv[1]))["traceEvents"]:
    if event.get("cat") == "communication" and "sequence" in event["args"]:
        call = event["args"]["communicator"], event["args"]["sequence"]
        calls[event["pid"] - 1][call] = event["args"].get("operation", event["name"])
    if event.get("cat") == "backward":
        steps[event["pid"] - 1].add(event["args"]["step"])
both = calls[0].keys() & calls[1].keys()
assert min(map(len, steps)) >= 10 and len(both) >= 15, (steps, both)
assert all(calls[0][call] == calls[1][call] for call in both), calls
assert {calls[0][call] for call in both} == {"allreduce", "broadcast"}, calls
assert min(calls[0]) < min(calls[1]), calls
PYTHON
}
expect 0 timeout 300 "$bin/farandole" record --run-dir job -- "${python[@]}" -m torch.distributed.run --nproc-per-node 2 \
  --max-restarts 1 --master-port $((20000 + $$ % 10000)) "$here/guest.py" job "$work/meeting"
alike job
[[ -s job/starts/0001/recorder/rank-0001.ftl && ! -e job/starts/0002 ]] || fail "the first start: $(find job)"
[[ $(stat -c %a job) == 700 ]] || fail "the folder's mode: $(stat -c %a job)"
grep -q '"ranks": 2' job/run.json && grep -q '"restarts": 1' job/run.json || fail "run.json: $(<job/run.json)"
expect 0 timeout 300 "$bin/farandole" record -- "${python[@]}" "$here/guest.py" spawn $((30000 + $$ % 10000))
silent err
runs=(farandole-runs/*)
[[ ${#runs[@]} == 1 ]] || fail "not one run: ${runs[*]}"  # The parent of the ranks is none.
alike "${runs[0]}"

# The same ends, output and messages with and without us.
expect 0 timeout 300 "${python[@]}" "$here/guest.py" ends none
mv out out.without; mv err err.without
expect 0 env TMPDIR="$work/tmp" timeout 300 "$bin/farandole" record -- "${python[@]}" "$here/guest.py" ends ends
diff out.without out || fail "another output than without us"
diff err.without <(grep -v ^farandole: err) || fail "other messages than without us"
for why in 'nothing is recorded: .*/none.so: ' 'nothing is recorded: .*/proc/none' "nothing is recorded: $work/ends/shared is in use by process"; do
  [[ $(grep -c "^farandole: $why" err) == 1 ]] || fail "not one line '$why': $(<err)"
done
[[ $(grep -c ^farandole: err) == 3 ]] || fail "other lines: $(<err)"
for run in return:0 exit:3 exception:1; do
  grep -q "\"exit_code\": ${run#*:}" "ends/${run%:*}/run.json" || fail "$run: $(<"ends/${run%:*}/run.json")"
done
for run in ends/{return,exit,exception,_exit,killed,terminated,execution,shared}; do
  expect 0 "$bin/farandole" timeline merge "$run"
  [[ $(zcat "$run/timeline.json.gz" | grep -c '"cat":"backward"') -ge 10 ]] || fail "no steps in $run"
done
rmdir tmp || fail "left behind: $(ls -R tmp)"
exit $((failures > 0))
