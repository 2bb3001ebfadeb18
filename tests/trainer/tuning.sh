#!/usr/bin/env bash
# --bucket-mb auto: the result is printed, stored as a profile, used when the run continues, and usable for other runs.
source "$(dirname "$0")/common.sh"
options=(--model mlp --data synthetic --synthetic-samples 4000 --layers 3 --width 64 --batch-size 16 --epochs 1 --log-steps 10)
train 2 "${options[@]}" --bucket-mb auto --run-dir run --steps 100 || fail "the tuned run"
grep -q "^buckets of .* MiB: .* written to run/tuned-2-ranks.ini" out || fail "nobody says what was found"
grep -qx "bucket-mb=[0-9.]*" run/tuned-2-ranks.ini || fail "no size is kept: $(cat run/tuned-2-ranks.ini)"
train 2 "${options[@]}" --bucket-mb auto --run-dir run || fail "going on"
grep -q "continuing from step 100" out || fail "it did not resume"
! grep -q "written to" out || fail "it was tuned again"
train 2 --profile run/tuned-2-ranks.ini --profile mlp "${options[@]}" --run-dir other --steps 5 || fail "the profile"
