#!/usr/bin/env bash
# --check-replicas: ranks with the same parameters pass, and a rank whose memory changes by itself ends the job and is named.
# Ranks that share their parameters cannot differ.
source "$(dirname "$0")/common.sh"
need_h5py
options=(--model mlp --layers 1 --data synthetic --lr 0 --log-steps 1 --check-replicas 2 --shard off)
train 2 "${options[@]}" --steps 7 --run-dir good || fail "a run whose ranks are the same"
/usr/bin/python3 - <<'PYTHON' || fail "the steps that were checked"
import collections, gzip, json
events = json.load(gzip.open("good/timeline.json.gz"))["traceEvents"]
steps, checks = collections.defaultdict(list), collections.defaultdict(list)
for event in events:
    if event["ph"] == "X" and event["name"] in ("step", "check replicas"):
        (steps if event["name"] == "step" else checks)[event["pid"]].append(event["ts"])
assert len(steps) == len(checks) == 2, (steps, checks)
for pid, times in checks.items():
    assert [sum(begin < time for begin in steps[pid]) for time in times] == [2, 4, 6], (pid, steps[pid], times)
PYTHON

# With a learning rate of 0, the parameters in memory are always those of the checkpoint.
timeout 240 "$bin/farandole" run -n 2 -- bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' bash \
  "$bin/farandole" train "${options[@]}" --timeline off --steps 1000000 --epochs 1000000 --checkpoint-every never --run-dir bad >out 2>err &
launcher=$!
await "the run ends early" test -s bad/metrics.jsonl
/usr/bin/python3 - "$(<pid.1)" <<'PYTHON' || fail "the memory of rank 1 cannot be changed"
import os, struct, sys, h5py
with h5py.File("good/checkpoints/step-00000007.h5") as file: weights = file["model/fc1.weight"][()].tobytes()
memory = os.open(f"/proc/{sys.argv[1]}/mem", os.O_RDWR)
found = []
for line in open(f"/proc/{sys.argv[1]}/maps"):
    begin, end = (int(address, 16) for address in line.split()[0].split("-"))
    if line.split()[1] != "rw-p": continue
    for start in range(begin, end, 1 << 24):
        try: piece = os.pread(memory, min(end - start, (1 << 24) + len(weights)), start)
        except OSError: continue
        at = piece.find(weights)
        if at >= 0: found.append(start + at)
assert found, "no parameters"
# An update of the rank may write the old value again. Nothing else is overwritten: when the rank ends, it gives the memory back.
old, new = weights[:4], struct.pack("<f", 3.5)
try:
    while True:
        for address in found:
            if os.pread(memory, 4, address) == old: os.pwrite(memory, new, address)
        os.kill(int(sys.argv[1]), 0)
except OSError: pass
PYTHON
wait $launcher
[[ $? == 1 ]] || fail "exit code of a run whose ranks differ"
grep -qE "the ranks' models have become different: 1 of 2 parameters, the first is fc1.weight with hash [0-9a-f]+ on rank 0 and [0-9a-f]+ on rank 1;" err ||
  fail "it does not name what differs"
