#!/usr/bin/env bash
# Runs that average parameters instead of gradients: a resumed run is bit-wise equal to an uninterrupted one.
source "$(dirname "$0")/common.sh"
need_h5py
options=(--model mlp --data synthetic --synthetic-samples 320 --layers 2 --width 32 --batch-size 16 --epochs 2
         --scale-lr false --checkpoint-every 4steps --checkpoint-keep 99 --log-steps 5)
for kind in "--synchronize parameters:3 --optimizer sgd --momentum 0.9 --lr 0.05" \
            "--synchronize parameters:epoch --optimizer adamw --lr 0.001"; do
  rm -rf whole parts
  read -ra choice <<<"$kind"
  train 2 "${options[@]}" "${choice[@]}" --run-dir whole || fail "the uninterrupted run with $kind"
  cp -r whole parts
  for file in parts/checkpoints/*.h5; do
    step=${file##*step-}
    ((10#${step%.h5} <= 8)) || rm "$file"
  done
  train 2 "${options[@]}" "${choice[@]}" --run-dir parts || fail "the second part with $kind"
  grep -q "continuing from step 8" out || fail "it did not resume"
  last=$(ls whole/checkpoints | tail -n 1)
  equal_arrays "whole/checkpoints/$last" "parts/checkpoints/$last" || fail "$kind: the checkpoints differ"
done
