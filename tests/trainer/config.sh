#!/usr/bin/env bash
# farandole config says where values come from, as the training takes them; and all profiles that come with Farandole are right.
source "$(dirname "$0")/common.sh"
profiles=${FARANDOLE_SOURCE:?}/profiles
unset "${!FARANDOLE_@}"
export FARANDOLE_PROFILE_PATH=$work
printf 'log-steps=3\nepochs=2\npartition=gpu\n' >farandole.ini
printf 'epochs=3\nbatch-size=64\nseed=9\n' >mine.ini

export FARANDOLE_BATCH_SIZE=16
options=(--profile mine --seed 5 --data synthetic --run-dir run --model mlp --width 16)
"$bin/farandole" config "${options[@]}" >out 2>err || fail "config"
for row in "--log-steps 3 $work/farandole.ini:1" "--epochs 3 $work/mine.ini:1" "--batch-size 16 FARANDOLE_BATCH_SIZE" "--seed 5 --seed" "--lr 0.01 default"; do
  tr -s ' ' <out | grep -qx -- "$row" || fail "no '$row'"
done
train 1 "${options[@]}" --steps 4 || fail "training"
grep -q '"batch": 16,' run/run.json && grep -q '"epochs": 3,' run/run.json || fail "the run has other values: $(<run/run.json)"
grep -q '"step":3,' run/metrics.jsonl || fail "log-steps"

"$bin/farandole" config "${options[@]}" --optimizer wrong >out 2>err
[[ $? == 64 ]] && grep -q "^farandole config: --optimizer cannot be 'wrong'" err || fail "a wrong value"
unset FARANDOLE_PROFILE_PATH FARANDOLE_BATCH_SIZE
for profile in "$profiles"/*.ini; do
  "$bin/farandole" config --profile "$(basename "$profile" .ini)" --data synthetic --run-dir run >out 2>err || fail "$profile"
  [[ $profile != */gpu-* ]] || grep -qE -- '^ *--device +cuda ' out || fail "$profile trains on CPUs"
  "$bin/farandole" submit --profile "$profile" --print -- train --data synthetic --run-dir run >out 2>err || fail "submit with $profile"
done
