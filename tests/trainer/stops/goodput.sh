#!/usr/bin/env bash
# The share of the time in which steps are trained that are not lost, while a random rank is killed every 30 s. Almost nothing is
# held out, because an evaluation is not lost time. Arguments: minutes (2), seconds between two kills (30), and the share below
# which the test fails (0.9).
source "$(dirname "$0")/../common.sh"
minutes=${1:-2} pause=${2:-30} floor=${3:-0.9}
RANDOM=$((${FARANDOLE_TEST_SEED:-1} % 32768))
"$bin/farandole" run -n 2 --max-restarts 1000 -- "$bin/farandole" train --model gpt --data "$text" --layers 2 \
  --width 128 --heads 4 --context 64 --batch-size 8 --optimizer adamw --lr 0.0003 --epochs 1000000 --log-steps 1 --timeline off \
  --validation 0.001 --checkpoint-every auto --mtbf "${pause}s" --run-dir run >out 2>err &
launcher=$!
trap 'kill -9 $launcher 2>/dev/null; rm -rf "$work"' EXIT  # The ranks end after their launcher.
await "it does not start" test -s run/metrics.jsonl
begin=$SECONDS
for ((kills = 0; SECONDS + pause < begin + 60 * minutes; kills++)); do
  sleep "$pause"
  supervisors=($(pgrep -P "$(pgrep -P $launcher)"))
  kill -9 "$(pgrep -P "${supervisors[RANDOM % 2]}")"
done
sleep "$pause"
seconds=$((SECONDS - begin))
/usr/bin/python3 - "$seconds" "$kills" "$floor" <<'PYTHON' || fail "goodput"
import json, statistics, sys
seconds, kills, floor = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
steps = [json.loads(line) for line in open("run/metrics.jsonl") if '"step_ms"' in line]
step_s = statistics.median(step["step_ms"] for step in steps) / 1e3
goodput = steps[-1]["step"] * step_s / seconds
lost = json.load(open("run/run.json"))["lost_steps"]
print(f"goodput {100 * goodput:.1f} %: {kills} kills in {seconds:.0f} s, {steps[-1]['step']} steps of {1e3 * step_s:.1f} ms, {lost} steps lost")
assert goodput > floor, goodput
PYTHON
kill -TERM $launcher
wait $launcher
[[ $? == 75 ]] || fail "the end"
