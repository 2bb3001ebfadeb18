#!/usr/bin/env bash
# new.sh BIN: a project of the installed `farandole new` is built as its README says, trains on two ranks, is killed and continues, and
# is stopped and continues on three. install.sh calls this.
prefix_bin=$1
source "$(dirname "$0")/../trainer/common.sh"
export PATH=$prefix_bin:$PATH
farandole new net >out 2>err && cd net || fail "farandole new"
cmake -G Ninja -B build >out 2>err && cmake --build build >out 2>&1 || fail "the project cannot be built"

epochs=6
start() {  # RUN RANKS: in the background
  timeout 300 farandole run -n "$2" --run-dir "$1" -- build/train $epochs >out 2>err &
  launcher=$!
}
run() { start "$@" && wait $launcher; }
newest() { ls "$1"/checkpoints/step-*.h5 2>/dev/null | tail -n 1; }
saved() { [[ $(newest "$run") ]]; }

run runs/net 2 || fail "the training"
grep -qE '^epoch 2: accuracy (0\.[5-9]|1)' out || fail "nothing is learned"
[[ -s runs/net/metrics.jsonl && -s runs/net/run.json ]] || fail "the files of the run"
# On a busy machine, no phase may explain why a rank is late; all else is known.
farandole analyze runs/net >out 2>err && ! sed '/^Where the time goes/q' out | grep unknown || fail "the analysis"

run=runs/killed
start $run 2
await "the training ended early" saved
for pid in $(pgrep -x train); do
  [[ $(readlink "/proc/$pid/cwd") != "$PWD" ]] || { kill -KILL "$pid"; break; }
done
! wait $launcher || fail "no rank was killed"
run $run 2 || fail "the killed training does not continue"
[[ $(/usr/bin/python3 -c 'import json; print(json.load(open("runs/killed/run.json"))["restarts"])') == 1 ]] || fail "no second start"
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  equal_arrays "$(newest runs/net)" "$(newest $run)" >out 2>err || fail "the killed training ends with other parameters"
fi

run=runs/stopped
start $run 2
await "the training ended early" saved
kill -TERM $launcher
wait $launcher
[[ $? == 75 ]] || fail "the exit code of a training that was told to stop"
run $run 3 || fail "the training does not continue on other ranks"
[[ $(basename "$(newest $run)") == "$(basename "$(newest runs/net)")" ]] || fail "other steps on other ranks"
