#!/usr/bin/env bash
# Above --merge-limit the trace has only some ranks, and every rank's recorder file is kept. Recorder files on the nodes
# are copied to the run directory.
source "$(dirname "$0")/common.sh"
mkdir node
train 4 --model mlp --data synthetic --width 16 --steps 5 --checkpoint-every never --run-dir run --merge-limit 2 --recorder-dir "$PWD/node" || fail "the run: $?"
grep -q 'the timeline shows 2 of 4 ranks: the first, the last.*; each rank' err || fail "it does not say what is left out"
[[ $(ls run/recorder | xargs) == "rank-0000.ftl rank-0001.ftl rank-0002.ftl rank-0003.ftl" ]] || fail "recorders: $(ls run/recorder)"
[[ -z $(ls node) ]] || fail "left on the node: $(ls node)"
shows() { # TRACE PROCESSES
  python3 - "$@" <<'PYTHON' || fail "the trace $1"
import gzip, json, sys
events = json.load(gzip.open(sys.argv[1]))["traceEvents"]
got = sorted({event["pid"] - 1 for event in events if event["ph"] == "X"})
assert str(got) == sys.argv[2], got
PYTHON
}
shows run/timeline.json.gz "[0, 3]"
"$bin/farandole" timeline merge run -o all.json.gz >out 2>err || fail "merge"
shows all.json.gz "[0, 1, 2, 3]"
train 2 --model mlp --data synthetic --steps 1 --run-dir bad --recorder-dir "$PWD/missing"
[[ $? == 64 && $(wc -l <err) == 1 ]] || fail "--recorder-dir missing"
grep -q "recorder-dir is '.*/missing'" err || fail "what is wrong with --recorder-dir"
