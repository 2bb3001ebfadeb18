#!/usr/bin/env bash
# A run directory that holds something else than this run is refused and stays as it is.
source "$(dirname "$0")/../common.sh"

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
train 2 "${longer[@]}" --optimizer rmsprop --steps 4 --resume-optimizer fresh || fail "--resume-optimizer fresh"
grep -q 'continuing from step 2' out || fail "it did not resume"
refused 64 '.rmsprop. than this run .rmsprop with momentum.' "${longer[@]}" --optimizer rmsprop --momentum 0.9 --steps 6
train 2 "${longer[@]}" --optimizer rmsprop --steps 6 --resume-optimizer fresh || fail "--resume-optimizer fresh with the same optimizer"
for file in kept/checkpoints/*.h5; do printf 'x' | dd of="$file" bs=1 seek=3000 conv=notrunc status=none; done
before=$(sha256sum kept/checkpoints/*)
train 2 "${small[@]}" --run-dir kept
[[ $? == 65 ]] || fail "damaged checkpoints must end with 65"
[[ $before == "$(sha256sum kept/checkpoints/*)" ]] || fail "damaged checkpoints were changed"

# A FIFO in the place of a file is refused, and nobody waits for its writer.
train 2 "${small[@]}" --run-dir pipes || fail "a run for the pipes"
rm pipes/metrics.jsonl pipes/checkpoints/*
mkfifo pipes/metrics.jsonl
refused 65 'pipes/metrics.jsonl cannot be read: it is not a regular file' "${small[@]}" --run-dir pipes
mkfifo pipes/checkpoints/step-00000009.h5
timeout 300 "$bin/farandole" checkpoint verify pipes >out 2>err
[[ $? == 65 ]] && grep -q 'step-00000009.h5 cannot be read: it is not a regular file' err || fail "a FIFO as a checkpoint"
timeout 300 "$bin/farandole" status pipes >out 2>err || fail "farandole status with FIFOs: $?"

# A run directory on a file system that this user cannot write to.
mkdir locked
if unshare -rm mount -t tmpfs -o ro none locked 2>/dev/null; then
  cat >locked.sh <<'SCRIPT'
mount -t tmpfs -o ro none locked
exec "$@"
SCRIPT
  unshare -rm bash locked.sh timeout 300 "$bin/farandole" run -n 2 -- "$bin/farandole" train "${small[@]}" --run-dir locked >out 2>err
  [[ $? == 64 ]] && grep -q 'run directory .*locked is not writable; choose another --run-dir' err || fail "a read-only run directory"
  [[ $(grep -c . err) == 1 ]] || fail "a read-only run directory: not one line"
fi
