#!/usr/bin/env bash
# One job at a time writes into a run directory: a second is refused and changes nothing; after the first was killed, the next one
# takes over at once.
source "$(dirname "$0")/../common.sh"

long=("$bin/farandole" train --model mlp --data synthetic --width 8 --epochs 100000 --checkpoint-every 20steps --run-dir r)
"$bin/farandole" run -n 2 -- "${long[@]}" >first.out 2>first.err &
first=$!
trap 'kill -TERM $first 2>/dev/null; wait; rm -rf "$work"' EXIT
until ls r/checkpoints/step-*.h5 >/dev/null 2>&1; do
  kill -0 $first || fail "the first job has ended: $(cat first.err)"
  sleep 0.1
done
rank_0=$(python3 -c 'import glob, json; print(json.load(open(glob.glob("r/lease-*.json")[0]))["process"])')
record=$(sha256sum r/run.json)
# By the launcher before it starts ranks, and by the ranks where no launcher knows the run directory.
refused 64 "r is in use by process $rank_0 on " --model mlp --data synthetic --width 8 --epochs 100000 --run-dir r
printf 'model=mlp\ndata=synthetic\nwidth=8\nrun-dir=r\n' >own.ini
refused 64 "r is in use by process $rank_0 on " --profile own.ini
[[ $record == "$(sha256sum r/run.json)" ]] || fail "a refused job changed the first one"
kill -0 $first || fail "the first job did not survive the second"

kill -KILL "$rank_0"
wait $first && fail "a job without rank 0 ended with 0"
reached=$(ls r/checkpoints | sort | tail -1)
[[ -n $(find r -name 'lease-*.json') ]] || fail "a killed job cannot have given its lease back"
train 2 --model mlp --data synthetic --width 8 --steps 1 --run-dir r
[[ $? == 0 ]] && grep -q 'nothing left to do' out || fail "the next job did not take over after $reached"
! grep -q 'gave no sign\|looking for' err || fail "the next job waited for a job that was dead on this host"
[[ -z $(find r -name 'lease-*.json') ]] || fail "the lease was not given back"
