#!/usr/bin/env bash
# Timelines of real jobs on two hosts with separate disks for recorders: requested by SIGUSR2 through Slurm, left by a
# killed rank, and with a slow host that the analyzer must name, even if its clock is one second ahead, and
# even if it is 5 % slow.
hosts=2 cpus=4 needs=farandole-train
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
over_tcp
mkdir node
for n in 1 2; do "$sandbox" exec node$n mount -t tmpfs -o size=512m recorders "$work/node" || skip "no file system can be mounted on a host"; done

is_over() { [[ ! $(state) =~ PENDING|RUNNING|COMPLETING ]]; }
on_hosts() { for n in 1 2; do "$sandbox" exec node$n ls "$work/node"; done | grep -c . || true; }
# submit COMMAND...: starts a rank on each host, recorded in the new folder run, and returns when both run. It submits
# again if Open MPI crashed at its start; see doctor.sh.
submit() {
  printf '#!/bin/bash\nexport FARANDOLE_RECORDER_DIR=%s FARANDOLE_RUN_DIR=%s\nexec farandole run -- %s\n' "$work/node" "$work/run" "$*" >job.sbatch
  for _ in 1 2 3; do
    rm -rf run
    mkdir run
    job=$(sbatch --parsable --output="$work/out.%j" -N2 --ntasks-per-node=1 job.sbatch) || fail "sbatch $*"
    until_true 60 at_work_or_over
    at_work && return
    [[ $(state) == COMPLETED ]] && return
  done
  fail "the job does not start: $(tail -n 5 "out.$job")"
}
at_work() { [[ -L run/recorder/rank-0000.node && -L run/recorder/rank-0001.node ]]; }
at_work_or_over() { at_work || is_over; }
# of_both TRACE STEP: the trace has both ranks with their hosts, in step STEP or later.
of_both() {
  python3 - "$@" <<'PYTHON' || fail "the trace $1"
import gzip, json, sys
events = json.load(gzip.open(sys.argv[1]))["traceEvents"]
hosts = {e["args"]["rank"]: e["args"]["host"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
assert hosts == {0: "node1", 1: "node2"}, hosts
for pid in (1, 2):
    last = max((e["args"]["step"] for e in events if e["ph"] == "X" and e["pid"] == pid and e["name"] == "step"), default=-1)
    assert last >= int(sys.argv[2]), (pid, last)
PYTHON
}
brought() {
  [[ $(ls run/recorder | xargs) == "rank-0000.ftl rank-0001.ftl" ]] || fail "in the run: $(ls run/recorder)"
  [[ $(on_hosts) == 0 ]] || fail "left on the hosts: $(on_hosts) files"
}

submit farandole train --model mlp --data synthetic --width 16 --epochs 1000000 --checkpoint-every never --resume none --log-steps 5 \
  --stall-seconds 0 --run-dir "$work/run"
until_true 60 grep -q '"step":10,' run/metrics.jsonl
[[ $(on_hosts) == 2 && -z $(ls node) ]] || fail "on the hosts are $(on_hosts) recorders, here $(ls node)"
scancel --batch --signal=USR2 "$job"
until_true 60 test -s run/timeline.json.gz
of_both run/timeline.json.gz 5
expect 0 farandole analyze run
until_true 60 grep -q 'trace requested by SIGUSR2' "out.$job"

# The launcher's host copies the recorder file of rank 0, and the supervisor of the killed rank copies its own.
"$sandbox" exec node2 pkill -KILL -x farandole-train
until_true 60 is_over
brought
expect 0 farandole timeline salvage run
of_both run/timeline.json.gz 5
expect 0 farandole doctor run
tr -s ' \n' ' ' <"$work/out" | grep -qE '^Rank 1 on node2 was killed by signal 9' || fail "the verdict: $(<"$work/out")"

# slow_host FAULT STEPS [WRAPPER]: all ranks of node2 are late in each backward.
slow_host() {
  submit ${3:-} straggling "$1" "$2" node2
  until_true 100 is_over
  [[ $(state) == COMPLETED ]] || fail "straggling $*: $(state), $(tail -n 5 "out.$job")"
  brought
  expect 0 farandole analyze run --format json
  python3 - "$work/out" <<'PYTHON' || fail "the slow host is not named"
import json, sys
late = {(one["rank"], one["host"], one["pattern"], one["phase"]) for one in json.load(open(sys.argv[1]))["runs"][0]["stragglers"] if one["pattern"] == "chronic"}
assert late == {(1, "node2", "chronic", "backward")}, late
PYTHON
}
slow_host backward 12

cat >clock_ahead <<'BASH'
#!/bin/bash
[[ $(hostname) != node2 ]] || exec unshare --time --monotonic 1 --fork --kill-child -- "$@"
exec "$@"
BASH
chmod +x clock_ahead
slow_host backward 12 "$work/clock_ahead"
python3 - run/timeline.json.gz <<'PYTHON' || fail "a clock that is ahead"
import collections, gzip, json, sys
trace = json.load(gzip.open(sys.argv[1]))
residual_us = trace["otherData"]["clock_residual_us"]
print("residuals in us:", residual_us)
assert residual_us[0] == 0 and 0 < residual_us[1] < 5000, "the clocks were not measured"
collectives = collections.defaultdict(list)
for event in trace["traceEvents"]:
    if event["ph"] == "X" and "sequence" in event.get("args", {}):
        collectives[event["args"]["communicator"], event["args"]["sequence"]].append(event)
met = [both for both in collectives.values() if len(both) == 2]
assert len(met) >= 12, len(met)
for both in met:
    last = max(event["ts"] for event in both)
    assert all(event["ts"] + event["dur"] >= last - 0.002 for event in both), both
PYTHON
slow_host slow 200
exit $((failures > 0))
