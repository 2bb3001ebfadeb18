#!/usr/bin/env bash
# A run directory that holds something else than this run is refused and stays as it is.
source "$(dirname "$0")/common.sh"

small=(--model mlp --data synthetic --width 8 --steps 2 --timeline off)
# A run directory of another model, or of a run that must not be overwritten, is not changed.
train 2 "${small[@]}" --run-dir kept || fail "a small run"
before=$(find kept -type f | sort | xargs sha256sum)
refused 64 'another model.*width 8.*width 9' --model mlp --data synthetic --width 9 --steps 2 --timeline off --run-dir kept
refused 64 'already holds a run' "${small[@]}" --run-dir kept --resume none
refused 64 'nosuch.h5' "${small[@]}" --run-dir kept --resume nosuch.h5
refused 64 'another optimizer .sgd. than this run .adam.; .*--resume-optimizer fresh' "${small[@]}" --optimizer adam --run-dir kept
[[ $before == "$(find kept -type f | sort | xargs sha256sum)" ]] || fail "a refused run changed the run directory"
longer=(--model mlp --data synthetic --width 8 --timeline off --run-dir optimizers)
train 2 "${longer[@]}" --optimizer adam --steps 2 || fail "a run with adam"
refused 64 'another optimizer .adam. than this run .rmsprop.' "${longer[@]}" --optimizer rmsprop --steps 4
refused 64 'another optimizer .adam. than this run .sgd.' "${longer[@]}" --optimizer sgd --steps 4
train 2 "${longer[@]}" --optimizer rmsprop --steps 4 --resume-optimizer fresh || fail "--resume-optimizer fresh"
grep -q 'continuing from step 2' out || fail "it did not resume"
refused 64 '.rmsprop. than this run .rmsprop with momentum.' "${longer[@]}" --optimizer rmsprop --momentum 0.9 --steps 6
train 2 "${longer[@]}" --optimizer rmsprop --steps 6 --resume-optimizer fresh || fail "--resume-optimizer fresh with the same optimizer"
for file in kept/checkpoints/*.h5; do printf 'x' | dd of="$file" bs=1 seek=3000 conv=notrunc status=none; done
before=$(sha256sum kept/checkpoints/*)
train 2 "${small[@]}" --run-dir kept
[[ $? == 65 ]] || fail "damaged checkpoints must end with 65"
[[ $before == "$(sha256sum kept/checkpoints/*)" ]] || fail "damaged checkpoints were changed"
