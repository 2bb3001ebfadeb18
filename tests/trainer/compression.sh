#!/usr/bin/env bash
# Runs with compressed gradients. A resumed run is bit-wise equal to an uninterrupted one. A run with another compression
# can continue from the checkpoint.
source "$(dirname "$0")/common.sh"
need_h5py
options=(--model mlp --data synthetic --synthetic-samples 320 --layers 2 --width 32 --batch-size 16 --lr 0.05 --epochs 1
         --checkpoint-every never --log-steps 5)
train 2 "${options[@]}" --compression bfloat16 --run-dir whole || fail "the uninterrupted run"
train 2 "${options[@]}" --compression bfloat16 --run-dir parts --steps 4 || fail "the first part"
cp -r parts other
train 2 "${options[@]}" --compression bfloat16 --run-dir parts || fail "the second part"
grep -q "continuing from step 4" out || fail "it did not resume"
last=$(ls whole/checkpoints | tail -n 1)
equal_arrays {whole,parts}/checkpoints/"$last" model/ || fail "the checkpoints differ"

train 3 "${options[@]}" --compression float16 --run-dir other || fail "going on with another compression on 3 ranks"
grep -q "continuing from step 4" out || fail "it did not resume with another compression"
