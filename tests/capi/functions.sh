#!/usr/bin/env bash
# The functions of farandole/capi.h from a program in C, on three ranks; and what is recorded is what was called. Two guests
# record without MPI and without each other, end with their own exit code, and number their collectives alike.
source "$(dirname "$0")/../trainer/common.sh"
timeout 120 "$bin/farandole" run -n 3 --run-dir run -- "$bin/capi_functions" >out 2>err && grep -qx done out || fail "the functions"
timeout 120 "$bin/farandole" run -n 2 --run-dir foreign -- "$bin/capi_foreign_mpi" >out 2>err && [[ ! -s err ]] || fail "a program that ends MPI first"
"$bin/farandole" timeline merge foreign >out 2>err || fail "the records of a program that ends MPI first"
"$bin/farandole" timeline merge run >out 2>err || fail "the records cannot be merged"
for start in 1 2; do for rank in 0 1; do
  OMPI_MCA_pml=none "$bin/capi_functions" guest $rank guests >out 2>err
  [[ $? == 3 && ! -s err ]] || fail "guest $rank of start $start: $(<err)"
done; done
[[ -s guests/starts/0001/recorder/rank-0001.ftl && ! -e guests/starts/0002 ]] || fail "the guests' first start: $(find guests)"
# Ranks that have met say which one is late, and end without each other.
for rank in 0 1; do FARANDOLE_STALL_SECONDS=1 "$bin/capi_functions" wait $rank waiting >/dev/null 2>"err.$rank" & guests+=($!); done
for ((i = 0; i < 600; ++i)); do grep -q 'rank 1] keeps other ranks waiting' err.1 && grep -q 'rank 0] is stalled: it is in allreduce' err.0 && break; sleep 0.1; done
((i < 600)) || fail "guests did not say who is late: $(cat err.0 err.1)"
touch seen
for guest in "${guests[@]}"; do wait "$guest" || fail "a guest that met another one"; done
"$bin/farandole" timeline merge guests >out 2>err || fail "the records of guests: $(<err)"
/usr/bin/python3 - <<'PYTHON' 2>err || fail "what is recorded"
import collections
import gzip
import json

facts = json.load(open("run/run.json"))
assert (facts["program"], facts["global_batch"], facts["parameters"], facts["ranks"]) == ("functions", 6, 17, 3), facts
assert facts["versions"]["torch"] == "2.0" and facts["exit_code"] == 0, facts
assert [json.loads(line) for line in open("run/metrics.jsonl")] == [{"step": 3, "epoch": 1, "loss": 0.5, "norm": None}]
guests = json.load(open("guests/run.json"))
assert (guests["ranks"], guests["exit_code"], guests["restarts"], "mpi" in guests["versions"]) == (2, 3, 1, False), guests
calls = [collections.Counter(), collections.Counter()]
for event in json.load(gzip.open("guests/timeline.json.gz"))["traceEvents"]:
    if event.get("cat") == "communication":
        calls[event["pid"] - 1][event["args"]["communicator"], event["args"]["sequence"]] += 1
assert calls[0] == {(0x8000 + 40000 % 32766, call): 1 for call in range(60)}, calls
assert calls[1] == {(number, call + 5): 1 for number, call in calls[0]}, calls
events = json.load(gzip.open("run/timeline.json.gz"))["traceEvents"]
names = collections.Counter((event["name"], event["pid"]) for event in events if event.get("cat") == "communication")
spans = collections.Counter(event["cat"] for event in events if event["ph"] == "X")
for pid in 1, 2, 3:
    assert [names[name, pid] for name in ("first", "second", "third")] == [20] * 3, names
assert spans["backward"] == spans["step"] == 60 and spans["data"] == 0, spans
groups = {event["args"]["communicator"] for event in events if event["name"] == "sums"}
assert len(groups) == 3, groups
PYTHON
