#!/usr/bin/env bash
# Slurm sends USR1 before a time limit: the ranks save and exit with code 75, and the same command continues from there.
source "$(dirname "$0")/common.sh"
command=("$bin/farandole" run -n 2 -- "$bin/farandole" train --model mlp --data synthetic --width 16 --epochs 1000000 --log-steps 5
         --checkpoint-epochs 0 --timeline off --run-dir run)
"${command[@]}" >out 2>err &
launcher=$!
until [[ -s run/metrics.jsonl ]]; do kill -0 $launcher || fail "the run ended early"; done
kill -USR1 $launcher
wait $launcher
code=$?
[[ $code == 75 ]] || fail "exit code $code instead of 75"
grep -q 'stop requested: saved at step' out || fail "it does not say so"
grep -q '"exit_code": 75' run/run.json || fail "run.json: $(cat run/run.json)"
saved=$(ls run/checkpoints | wc -l)
[[ $saved == 1 ]] || fail "$saved checkpoints"
/usr/bin/python3 - <<'PYTHON' || fail "it has a score, though nothing was evaluated at its step"
import glob, math, h5py
assert math.isnan(h5py.File(glob.glob("run/checkpoints/*.h5")[0]).attrs["score"])
PYTHON
"${command[@]}" --steps 1 >out 2>err || fail "resuming"
grep -q 'nothing left to do' out || fail "it did not resume"

# The ranks stop at once, however seldom they log, and also if they do not communicate in each step.
for options in "--synchronize gradients" "--synchronize parameters:epoch" "--compression topk:0.5"; do
  read -ra choice <<<"$options"
  "${command[@]}" --log-steps 1000000000 --steps 20000 "${choice[@]}" --run-dir seldom >out 2>err &
  launcher=$!
  until [[ -s seldom/metrics.jsonl ]]; do kill -0 $launcher || fail "the run ended early with $options"; done
  kill -USR1 $launcher
  wait $launcher
  code=$?
  [[ $code == 75 ]] || fail "exit code $code instead of 75 with $options"
  rm -r seldom
done

# Neither the trace nor run.json can be written, as on a full disk: the checkpoint is still valid.
command=("$bin/farandole" run -n 2 -- "$bin/farandole" train --model mlp --data synthetic --width 16 --epochs 1000000 --log-steps 5
         --checkpoint-epochs 0 --run-dir full)
"${command[@]}" >out 2>err &
launcher=$!
until [[ -s full/metrics.jsonl ]]; do kill -0 $launcher || fail "the run ended early"; done
mkdir -p full/timeline.json.gz/in-the-way
rm full/run.json && mkdir -p full/run.json/in-the-way
kill -USR1 $launcher
wait $launcher
code=$?
[[ $code == 75 ]] || fail "exit code $code instead of 75 where the trace cannot be written"
[[ $(grep -c 'could not be written.*farandole timeline merge full' err) == 1 ]] || fail "it does not say what to do about the trace"
[[ $(ls full/recorder | xargs) == "rank-0000.ftl rank-0001.ftl" ]] || fail "recorders: $(ls full/recorder)"
"$bin/farandole" timeline merge full -o merged.json.gz >out 2>err || fail "merging later"
