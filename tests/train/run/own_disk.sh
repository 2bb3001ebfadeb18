#!/usr/bin/env bash
# What a first day does to the run directory of a program of one's own (own_training.cc): no space, no right to write, and no samples.
if [[ ${1:-} != inside ]]; then
  unshare -rm mount -t tmpfs none /tmp 2>/dev/null || { echo "skipped: file systems cannot be mounted here"; exit 77; }
  exec unshare -rm bash "$0" inside
fi
source "$(dirname "$0")/../../trainer/common.sh"
trap 'umount -q full/checkpoints; umount -q locked; rm -rf "$work"' EXIT

own() {  # RUN SETTING…
  timeout 240 "$bin/farandole" run -n 2 --run-dir "$1" -- "$bin/own_training" "${@:2}" >out 2>err
}
refused() {  # PATTERN RUN SETTING…
  own "${@:2}"
  [[ $? == 64 ]] || fail "not refused: ${*:2}"
  grep -qE -- "$1" err || fail "stderr lacks '$1': ${*:2}"
  [[ $(grep -c . err) == 1 || $(grep -vc '^farandole run: ' err) == 1 ]] || fail "stderr is not one line: ${*:2}"
}

own whole || fail "a run with room"
bytes=$(($(stat -c "%b * %B" "$(ls whole/checkpoints/*.h5 | head -n 1)")))  # A file has holes.
mkdir -p full/checkpoints
mount -t tmpfs -o size=$((bytes + bytes / 2)) none full/checkpoints || fail "mount"
own full
[[ $? == 1 ]] || fail "exit code $? where the last checkpoint is lost"
grep -q 'checkpoint of step [0-9]* is lost: .*No space left on device; training continues' err || fail "no warning"
grep -q 'the checkpoint of step 120 is lost' err || fail "the end does not tell of the loss"
grep -q '"step":120,' full/metrics.jsonl || fail "it did not train to its end"
"$bin/farandole" checkpoint verify full >out 2>err || fail "the checkpoint that was there"

mkdir locked && mount -t tmpfs -o ro none locked || fail "mount"
# The launcher writes there first.
refused 'locked/logs, cannot be written; choose another --run-dir' locked

refused 'the sampler has 0 samples; the data set is empty' none samples=0
