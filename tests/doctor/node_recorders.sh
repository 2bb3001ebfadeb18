#!/usr/bin/env bash
# Recorder files on a node: the launcher copies those of killed ranks to the run directory, for doctor and salvage.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
mkdir node
export FARANDOLE_RECORDER_DIR=$work/node

brought() {  # RANKS
  [[ $(ls run/recorder | xargs) == "$(for ((r = 0; r < $1; r++)); do echo "rank-000$r.ftl"; done | xargs)" ]] || fail "in the run: $(ls run/recorder)"
  [[ -z $(ls node) ]] || fail "left on the node: $(ls node)"
  expect 0 "$bin/farandole" timeline salvage run
  for ((r = 0; r < $1; r++)); do says out "^run/recorder/rank-000$r.ftl: rank $r, [0-9]+ events read"; done
  gzip -dc run/timeline.json.gz | python3 -c '
import json, sys
events = json.load(sys.stdin)["traceEvents"]
assert {e["pid"] for e in events if e["ph"] == "X"} == set(range(1, int(sys.argv[1]) + 1)), "ranks"
' "$1" || fail "the salvaged trace"
}

names_rank_1() {
  diagnosed
  verdict "^Rank 1 on $host was killed by signal 9 \(Killed; .* in step 3, in backward, at .*ranks 0, 2 waited in allreduce #3 'bucket 0' for it"
}

job 0 2 nothing 0
brought 2

job 137 3 kill 1
brought 3
names_rank_1
field troubles '[]'

# Only the program knows the run directory.
rm -rf run
mkdir run
got=0
timeout 300 "$bin/farandole" run -n 3 -- sh -c "exec $bin/doomed_program run kill 1" >job.out 2>job.err || got=$?
[[ $got == 137 ]] || fail "the job ended with $got: $(<job.err)"
brought 3
names_rank_1
[[ -s run/launch/job.json ]] || fail "no record of the job"

# For a hanging job, they are read on the node. If all processes of a job are killed at once, the next
# start copies the files.
rm -rf run
mkdir run
FARANDOLE_RUN_DIR=$work/run setsid timeout 300 "$bin/farandole" run -n 2 -- "$bin/doomed_program" run hang 1 >job.out 2>job.err &
launcher=$!
until [[ -s run/pid.0 && -s run/pid.1 ]] || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
rm out.json
until python3 -c 'import json; assert [r["doing"] for r in json.load(open("out.json"))["ranks"]][1] == "in backward"' 2>/dev/null; do diagnosed; done
[[ $(ls run/recorder | xargs) == "rank-0000.node rank-0001.node" && $(ls node | wc -l) == 2 ]] || fail "while it hangs: $(ls run/recorder node)"
expect 0 "$bin/farandole" timeline merge run
pids=$(cat run/pid.*)
# No supervisor may see the end of its rank, because it would copy the file. Children are killed before their parents: the kernel
# continues stopped processes, and hangs them up, when the last parent in another process group ends.
pkill -STOP -s $launcher
kill -KILL $(pgrep -s $launcher | sort -rn)
{ wait $launcher; } 2>/dev/null
for pid in $pids; do while [[ -e /proc/$pid ]]; do sleep 0.05; done; done
rm "$(readlink run/recorder/rank-0001.node)"
expect 65 "$bin/farandole" timeline salvage run
says out "rank-0001.ftl is still on the node of its rank, at $work/node/farandole-rank-0001-"
says out 'rank 0, [0-9]+ events read, the rank ended without closing the file'
FARANDOLE_RUN_DIR=$work/run timeout 300 "$bin/farandole" run -n 2 -- "$bin/doomed_program" run nothing 0 >job.out 2>job.err || fail "the next job: $(<job.err)"
brought 2
exit $((failures > 0))
