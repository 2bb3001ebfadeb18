#!/usr/bin/env bash
# A run on 2 ranks that is stopped and resumed, within an epoch or between two, is bit-wise equal
# to an uninterrupted one.
source "$(dirname "$0")/../common.sh"
need_h5py
short_text 60000
options=(--model gpt --data short --layers 1 --width 32 --heads 2 --context 32 --batch-size 16 --dropout 0.1
         --optimizer adamw --lr 0.001 --warmup-steps 5 --schedule constant --clip-norm 1 --accumulate 2 --log-steps 5)
longer=("${options[@]}" --epochs 4)
options+=(--epochs 3)
train 2 "${options[@]}" --run-dir whole || fail "the uninterrupted run"
last=$(ls whole/checkpoints | tail -n 1)
steps=${last#step-}
per_epoch=$((10#${steps%.h5} / 3))

for stop in $((per_epoch / 2)) $per_epoch; do
  rm -rf parts
  train 2 "${options[@]}" --run-dir parts --steps "$stop" || fail "the first part, $stop steps"
  train 2 "${options[@]}" --run-dir parts || fail "the second part after $stop steps"
  grep -q "continuing from step $stop" out || fail "it did not resume at $stop"
  ! grep 'options differ' out || fail "the same options differ"
  ! grep -q 'loss -*nan' out || fail "a loss is shown before it is known"
  equal_arrays "whole/checkpoints/$last" "parts/checkpoints/$last" optimizer/ rng/ || fail "stopped at $stop: the checkpoints differ"
  grep -q '"restarts": 1' parts/run.json || fail "run.json does not count the restart"
done

# metrics.jsonl has each evaluated step once, and a finished run has nothing left to do.
[[ $(grep -c eval_loss parts/metrics.jsonl) -ge 3 ]] || fail "evaluations are missing: $(cat parts/metrics.jsonl)"
[[ -z $(grep -o '"step":[0-9]*,"epoch":[0-9]*,"loss"' parts/metrics.jsonl | sort | uniq -d) ]] || fail "a step is logged twice"
train 2 "${options[@]}" --run-dir parts || fail "resuming a finished run"
grep -q "nothing left to do" out || fail "a finished run should say so"

# A run that diverges between two lines of metrics.jsonl saves checkpoints with NaN: the next start uses the last finite one.
small=(--model mlp --data synthetic --width 16 --timeline off --checkpoint-every 1steps --checkpoint-keep 2 --log-steps 1000)
train 2 "${small[@]}" --run-dir bad --steps 3 || fail "a short run"
train 2 "${small[@]}" --run-dir bad --steps 8 --lr 1e39
[[ $? == 1 ]] && grep -q 'checkpoint of step 4 is not finite: /model/' err || fail "a run that diverges"
[[ $(ls bad/checkpoints | xargs) =~ ^step-0000000[12].h5\ step-00000003.h5\ (step-0000000[4-7].h5)$ ]] || fail "kept: $(ls bad/checkpoints)"
diverged=${BASH_REMATCH[1]}
"$bin/farandole" checkpoint list bad >out 2>err && [[ $(grep -c 'not finite: /model/' out) == 1 ]] || fail "list"
"$bin/farandole" checkpoint verify bad >out 2>err
[[ $? == 65 && $(grep -c ': good$' out) == 2 ]] && grep -q "$diverged: .*NaN" err || fail "verify"
train 2 "${small[@]}" --run-dir other --resume "bad/checkpoints/$diverged" --steps 8
[[ $? == 65 ]] && grep -q 'NaN' err || fail "resuming from a checkpoint that is not finite"
train 2 "${small[@]}" --run-dir bad --steps 8 || fail "resuming a run that has diverged"
grep -q 'continuing from step 3' out && [[ $(grep -c "skipped: .*$diverged: .*NaN" err) == 1 ]] || fail "the checkpoint it used"

# The run can continue on another number of ranks; --resume PATH starts a new run from any checkpoint.
train 3 "${longer[@]}" --run-dir parts --dropout 0.2 --clip-norm 2 --log-steps 3 || fail "resuming on 3 ranks"
[[ $(grep 'options differ' out) == "these options differ from those of the checkpoint: --clip-norm 2 instead of 1, --dropout 0.2 instead of 0.1" ]] ||
  fail "it does not name the options that differ"
train 1 "${longer[@]}" --run-dir fresh --resume "whole/checkpoints/$last" || fail "--resume PATH"
grep -q "continuing from step" out || fail "--resume PATH was not used"
train 1 "${longer[@]}" --run-dir fresh --resume "whole/checkpoints/$last"
[[ $? == 64 ]] && grep -q 'fresh already holds a run' err || fail "--resume PATH into another run"
# A requeued job has the options of its first start.
SLURM_RESTART_COUNT=1 train 1 "${longer[@]}" --run-dir fresh --resume "whole/checkpoints/$last" || fail "a requeued job with --resume PATH"
SLURM_RESTART_COUNT=1 train 1 "${longer[@]}" --run-dir fresh --resume none || fail "a requeued job with --resume none"
# A file system that fails for a moment must not make a run start anew.
mv fresh/checkpoints fresh/kept
ln -s checkpoints fresh/checkpoints
before=$(md5sum <fresh/metrics.jsonl)
train 1 "${longer[@]}" --run-dir fresh
[[ $? == 1 && $(md5sum <fresh/metrics.jsonl) == "$before" ]] && grep -q 'list the checkpoints in fresh/checkpoints' err ||
  fail "a folder that cannot be read"
