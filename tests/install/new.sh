#!/usr/bin/env bash
# new.sh BIN: a project of the installed `farandole new` is built as its README says, trains on two ranks, and is stopped
# and continues. install.sh calls this.
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

run=runs/stopped
start $run 2
await "the training ended early" saved
kill -TERM $launcher
wait $launcher
[[ $? == 75 ]] || fail "the exit code of a training that was told to stop"
run $run 2 || fail "the training does not continue"
[[ $(basename "$(newest $run)") == "$(basename "$(newest runs/net)")" ]] || fail "other steps after a stop"
