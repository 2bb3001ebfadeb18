#!/usr/bin/env bash
# A full disk: older checkpoints make room, and if that is not enough, training continues. The exit code tells of the loss.
if [[ ${1:-} != inside ]]; then
  unshare -rm mount -t tmpfs none /tmp 2>/dev/null || { echo "skipped: file systems cannot be mounted here"; exit 77; }
  exec unshare -rm bash "$0" inside
fi
source "$(dirname "$0")/../common.sh"
need_h5py
trap 'umount -q "$work"/*/checkpoints; rm -rf "$work"' EXIT
options=(--model mlp --data synthetic --width 64 --timeline off --checkpoint-every 2steps --checkpoint-keep 9 --log-steps 1)
train 2 "${options[@]}" --run-dir free --steps 2 || fail "a run with room"
bytes=$(($(stat -c "%b * %B" free/checkpoints/step-00000002.h5)))  # A file has holes.

# full NUMBER RUN OPTION...: a disk with room for so many checkpoints and a half
full() {
  mkdir -p "$2/checkpoints"
  mount -t tmpfs -o size="$((bytes * $1 + bytes / 2))" none "$2/checkpoints" || fail "mount"
  train 2 "${options[@]}" --run-dir "$2" --steps 12 "${@:3}"
}
full 3 small || fail "exit code $? on a disk with room for 3 checkpoints"
[[ -e small/checkpoints/step-00000012.h5 ]] || fail "the last checkpoint: $(ls small/checkpoints)"
! grep -q 'is lost' err || fail "a checkpoint was lost though there was room"

# Two steps in each epoch, because only the end of an epoch waits for the checkpoint before.
full 1 tiny --batch-size 461 --epochs 6 --checkpoint-every 1epochs
[[ $? == 1 ]] || fail "exit code $? where the last checkpoint is lost"
grep -q 'checkpoint of step [4-9] is lost: .*No space left on device; training continues' err || fail "no warning"
[[ $(grep -c '^farandole train: the checkpoint of step 12 is lost' err) == 1 ]] || fail "the end does not tell of the loss"
grep -q '"exit_code": 1' tiny/run.json || fail "run.json: $(cat tiny/run.json)"
grep -q '"step":12,' tiny/metrics.jsonl || fail "it did not train to its end"
[[ $(ls -A tiny/checkpoints) == step-00000002.h5 ]] || fail "left: $(ls -A tiny/checkpoints)"
"$bin/farandole" checkpoint verify tiny >out || fail "the checkpoint that was there"

# A step that is not finite returns to the checkpoint that the full disk has, although a later one was lost.
/usr/bin/python3 - <<'PYTHON' || fail "the data"
import h5py, numpy
with h5py.File("one.h5", "w") as file:
    x = numpy.random.default_rng(3).normal(size=(64, 64)).astype("float32")
    x[17] = 3e38
    file["x"], file["y"], file["x_test"], file["y_test"] = x, numpy.arange(64) % 10, x[:1], [0]
PYTHON
rollback=(--data one.h5 --batch-size 4 --epochs 2 --steps 16 --on-nonfinite rollback --checkpoint-every 1steps)
train 2 "${options[@]}" "${rollback[@]}" --run-dir once --steps 1 || fail "one step"
bytes=$(($(stat -c "%b * %B" once/checkpoints/step-00000001.h5)))  # A file has holes.
full 1 back "${rollback[@]}"
[[ $? == 1 ]] || fail "exit code $? of the run that returns to a checkpoint"
grep -qE '^step (9|1[0-6]): .* the parameters are those of step [0-9]+ again' out || fail "it does not return to its checkpoint"
grep -q '"step":16,' back/metrics.jsonl || fail "it does not go on after the rollback"

# Recorders that do not fit are not recorded, and one line of each rank names the file and what to do.
mkdir -p unrecorded/recorder
mount -t tmpfs -o size=1m none unrecorded/recorder || fail "mount"
trap 'umount -q "$work"/*/checkpoints unrecorded/recorder; rm -rf "$work"' EXIT
train 2 --model mlp --data synthetic --width 16 --steps 2 --recorder-mb 4 --run-dir unrecorded || fail "exit code $? of a run whose recorders do not fit"
[[ $(grep -c 'no timeline is recorded: .*unrecorded/recorder/rank-000[01].ftl: No space left on device; free some space there' err) == 2 ]] ||
  fail "no warning about recorders that do not fit: $(<err)"
[[ -z $(ls -A unrecorded/recorder) ]] || fail "left: $(ls -A unrecorded/recorder)"

# The disk of the run directory is full for a while: metrics.jsonl lacks those steps, and goes on.
mkdir gap
mount -t tmpfs -o size=16m none gap || fail "mount"
trap 'umount -q "$work"/*/checkpoints unrecorded/recorder gap; rm -rf "$work"' EXIT
timeout 240 "$bin/farandole" run -n 2 -- "$bin/farandole" train "${options[@]}" --recorder-mb 1 \
  --checkpoint-every 1000000steps --epochs 1000000 --run-dir gap >out 2>err &
launcher=$!
await "the run ends early" test -s gap/metrics.jsonl
dd if=/dev/zero of=gap/full bs=4k 2>/dev/null && fail "the disk is not full"
await "the run ends on a full disk" grep -q 'write gap/metrics.jsonl: No space left on device; from step [0-9]* on, lines of metrics are lost' err
rm gap/full
await "the run ends when there is room" more_lines gap/metrics.jsonl $(($(grep -c . gap/metrics.jsonl) + 100))
kill -TERM $launcher
wait $launcher
[[ $? == 75 ]] || fail "the end of the run whose disk was full"
grep -q 'gap/metrics.jsonl is written again from step [0-9]* on; [0-9]* lines are lost' err || fail "it does not say that metrics go on"
/usr/bin/python3 - <<'PYTHON' || fail "the lines of metrics"
import json
lines = [json.loads(line) for line in open("gap/metrics.jsonl")]
steps = [line["step"] for line in lines if "lr" in line]
assert steps == sorted(set(steps)) and len(steps) < steps[-1] - steps[0] + 1, (len(steps), steps[-1])
PYTHON
