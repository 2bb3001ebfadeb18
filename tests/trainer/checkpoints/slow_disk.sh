#!/usr/bin/env bash
# A disk that stands still while the job stops: the ranks wait for it. This is no stall, however short the limit is, and nothing is lost.
if [[ ${1:-} != inside ]]; then
  [[ $EUID == 0 ]] && unshare -m true 2>/dev/null || { echo "skipped: only root can freeze a file system"; exit 77; }
  exec unshare -m bash "$0" inside
fi
source "$(dirname "$0")/../common.sh"
mkdir -p run/checkpoints
truncate -s 64M disk
mkfs.ext4 -q disk && mount -o loop disk run/checkpoints || { echo "skipped: no disk can be made here"; exit 77; }
trap 'fsfreeze -u run/checkpoints 2>/dev/null; umount -q run/checkpoints; rm -rf "$work"' EXIT

command=("$bin/farandole" run -n 2 -- "$bin/farandole" train --model mlp --data synthetic --width 16 --epochs 1000000 --log-steps 1
         --checkpoint-every never --timeline off --stall-seconds 2 --stall-abort 5 --run-dir run)
"${command[@]}" >out 2>err &
launcher=$!
await "the run ended early" test -s run/metrics.jsonl
fsfreeze -f run/checkpoints || fail "the disk does not freeze"
kill -TERM $launcher
# More than twice the limit, in which a job that takes the disk for a stall ends.
timeout 12 tail -f --pid=$launcher /dev/null
[[ $? == 124 ]] || fail "the job ended before its checkpoint was written"
fsfreeze -u run/checkpoints
wait $launcher
[[ $? == 75 ]] || fail "the end of the job"
! grep -qi 'stall\|waits\|rank 1' err || fail "it reports a stall"
"$bin/farandole" checkpoint verify run >out || fail "the checkpoint"
