#!/usr/bin/env bash
# Each write into the run directory fails once, or from then on, because the disk is full or broken. Nothing that was good is lost,
# nothing unfinished stays, and the next start comes to the last step.
#   failing_writes.sh [all]   a random sample of the writes, or all of them
source "$(dirname "$0")/../common.sh"
library=${FARANDOLE_FAILING_WRITES:-$bin/failing_writes.so}
last=8 name=$(printf 'step-%08d.h5' 8)
training=("$bin/farandole-train" --model mlp --data synthetic --width 16 --checkpoint-every 2steps --checkpoint-keep 3 --log-steps 1
  --steps $last --recorder-mb 1 --resume auto --run-dir run)

start() {  # PLAN: the training, whose writes fail as the library is told
  timeout 120 env FAILING_FOLDER="$work/run" FAILING_WRITE="$1" FAILING_COUNT="$work/count" LD_PRELOAD="$library" \
    "${training[@]}" >out 2>err
}

start "0 0 once" || fail "a run on a good disk"
writes=$(<count)
((writes > 20)) || fail "only $writes writes: $(ls -R run)"

good() {  # WHEN: all files that are there are whole
  local left
  left=$(find run \( -name '.*' -o -name '*.tmp' -o -name '*.part' -o -name '*.node' \) ! -path run)
  [[ -z $left ]] || fail "$1: left behind: $left"
  ! ls run/checkpoints/*.h5 >/dev/null 2>&1 || "$bin/farandole" checkpoint verify run >verified 2>&1 || fail "$1: $(<verified)"
  python3 - <<'PYTHON' || fail "$1: a file is not whole"
import json, os
for name in ("run/run.json", "run/metrics.jsonl"):
    if not os.path.exists(name):
        continue
    text = open(name).read()
    assert text == "" or text.endswith("\n"), (name, text[-100:])
    for part in [text] if name.endswith("run.json") else text.splitlines():
        json.loads(part)
PYTHON
}

plans() {
  for ((n = 1; n <= writes; n++)); do
    for error in 28 5; do for how in once on; do echo "$n $error $how"; done; done  # ENOSPC, EIO
  done
}
sample=5
[[ ${1:-} != all ]] || sample=$((4 * writes))
RANDOM=${FARANDOLE_TEST_SEED:-1}
mapfile -t chosen < <(plans | while read -r plan; do echo "$RANDOM $plan"; done | sort -n | head -n "$sample" | cut -d' ' -f2-)
for plan in "${chosen[@]}"; do
  rm -rf run
  start "$plan"
  code=$?
  ((code == 0 || code == 1)) || fail "writes that fail ($plan): exit code $code"
  good "writes that fail ($plan)"
  ((code != 0)) || [[ -e run/checkpoints/$name ]] || fail "writes that fail ($plan): the exit code hides that the last checkpoint is lost"
  start "0 0 once" || fail "the start after writes that fail ($plan): exit code $?"
  [[ -e run/checkpoints/$name ]] || fail "the start after writes that fail ($plan) does not come to step $last: $(ls run/checkpoints)"
  good "the start after writes that fail ($plan)"
done
echo "$sample of $((4 * writes)) cases"
