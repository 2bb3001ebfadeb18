#!/usr/bin/env bash
# Kills a random rank at random moments, also while checkpoints are written, synchronized and renamed. The job goes on by itself, and
# its result is bit-wise equal to that of an undisturbed run. With a number N, there are N kills instead of 12.
source "$(dirname "$0")/../common.sh"
need_h5py
kills=${1:-12}
RANDOM=$((${FARANDOLE_TEST_SEED:-1} % 32768))
options=(--model gpt --data "$text" --layers 1 --width 32 --heads 2 --context 32 --batch-size 16 --dropout 0.1
         --optimizer adamw --lr 0.001 --epochs 1000000 --log-steps 1 --timeline off)

"$bin/farandole" run -n 2 --max-restarts 1000000 -- bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' bash \
  "$bin/farandole" train "${options[@]}" --run-dir killed --checkpoint-every 2steps >out 2>err &
launcher=$!
trap 'kill -9 $launcher 2>/dev/null; rm -rf "$work"' EXIT  # The ranks end after their launcher.
for ((i = 0; i < kills; i++)); do
  await "the job ended after $i kills" more_lines out $i 'steps in [0-9]* epochs'
  # A start is given the time for a step, because a job that makes no progress three times is not started again.
  sleep $((RANDOM % 2)).$(printf %03d $((300 + RANDOM % 700)))
  kill -9 "$(<"pid.$((RANDOM % 2))")"
done
await "the job ended after the last kill" more_lines out "$kills" 'steps in [0-9]* epochs'
kill -TERM $launcher
wait $launcher
[[ $? == 75 ]] || fail "exit code $? after the kills"
last=$(ls killed/checkpoints | tail -n 1)
steps=${last#step-}
train 2 "${options[@]}" --run-dir whole --steps "$((10#${steps%.h5}))" --checkpoint-every 1000000steps || fail "the undisturbed run"
equal_arrays "whole/checkpoints/$last" "killed/checkpoints/$last" || fail "the results differ"
/usr/bin/python3 - "$kills" "$last" <<'PYTHON' || fail "run.json"
import json, sys
run = json.load(open("killed/run.json"))
assert run["restarts"] == int(sys.argv[1]), run
print(f"{run['restarts']} kills until {sys.argv[2]}; {run['lost_steps']} steps were repeated")
PYTHON
leftovers=$(ls -A killed/checkpoints | grep -v '^step-[0-9]*\.h5$')
[[ -z $leftovers ]] || fail "left behind: $leftovers"
