#!/usr/bin/env bash
# farandole run --trace-torch records unchanged programs of PyTorch: their steps, phases and collectives.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset "${!SLURM_@}" "${!FARANDOLE_RUN_@}" MASTER_ADDR MASTER_PORT
python=/usr/bin/python3
farandole=$bin/farandole

# Without torch, nothing happens to the program, and the site's own sitecustomize runs.
expect 64 "$farandole" run --trace-torch -- true
says err 'trace-torch needs a run directory to record in; add --run-dir RUN$'
expect 64 "$farandole" run --torch-backend gloo -- true
says err "cannot be 'gloo'"
mkdir "$work/site"
echo 'print("the site begins")' >"$work/site/sitecustomize.py"
expect 0 env PYTHONPATH="$work/site" "$farandole" run --run-dir "$work/none" --trace-torch -- "$python" -c 'import sitecustomize; print(sitecustomize.__file__)'
says out '^the site begins$'
says out "^$work/site/sitecustomize.py\$"
says err '^farandole run: --trace-torch has recorded nothing: no rank'
expect 0 "$farandole" run -- "$python" -c 'import farandole, sys; print(farandole.__file__); assert "sitecustomize" not in sys.modules or "farandole" not in sys.modules["sitecustomize"].__file__'
says out 'lib[^ ]*/farandole/python/farandole/__init__.py$'
expect 0 "$farandole" doctor "$work/none"
says out 'trace-torch'

source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no Python here has the PyTorch of tools/setup"; ((failures)) && exit 1 || exit 77; }
# What torch.compile imports in vain here, where it is missing.
mkdir "$work/missing"
for module in filelock networkx; do
  "$python" -c "import $module" 2>/dev/null || printf '%s\n' 'def __getattr__(name):' '    if name.startswith("__"):' \
    '        raise AttributeError(name)' '    return type(name, (), {})' >"$work/missing/$module.py"
done
export PYTHONPATH=$PYTHONPATH:$work/missing

# recorded NAME RANKS WORD... -- ARGUMENT...: records the program, and compares the report with what the program says. Adds
# the options in `options`.
options=()
recorded() {
  local name=$1 ranks=$2 words=() program=$here/$1.py
  [[ -e $program ]] || program=$here/../$name.py
  shift 2
  while [[ $1 != -- ]]; do words+=("$1"); shift; done
  expect 0 timeout 600 "$farandole" run -n "$ranks" --run-dir "$work/$name" --trace-torch "${options[@]}" -- "$python" -W ignore "$program" "${@:2}"
  ! grep farandole "$work/err" || fail "$name: the launcher or a rank complains"
  mapfile -t -O "${#words[@]}" words < <(sed -nE 's/^([0-9.]+) by the own clock in (.*)/\2=\1/p' "$work/err")
  local steps=$(sed -n 's/^steps \([0-9]*\).*/\1/p' "$work/out")
  [[ -s $work/$name/timeline.json.gz ]] || fail "$name: no merged timeline"
  expect 0 "$farandole" analyze "$work/$name" --format json -o "$work/$name.json"
  expect 0 "$python" "$here/../expect_run.py" "$work/$name.json" "$work/$name" "${steps:-none}" 0.95 "${words[@]}"
}
recorded ddp 2 data\>0 forward\>0 backward\>0 optimizer\>0 wait\>0 evaluation\>0 checkpoint\>0 'bucket 0:allreduce' buffers:broadcast -- "$work/model.pt"
grep -q '"global_batch": 64' "$work/ddp/run.json" || fail "run.json: $(<"$work/ddp/run.json")"
grep -q '"parameters": 1325066' "$work/ddp/run.json" || fail "run.json: $(<"$work/ddp/run.json")"
options=(--torch-backend farandole)
recorded accumulate 2 wait\>0 allreduce:allreduce -- 3 --snapshot "$work/snapshot.pt"
options=()
grep -q '"global_batch": 128' "$work/accumulate/run.json" || fail "run.json: $(<"$work/accumulate/run.json")"
recorded sharded 2 forward\>0 all_gather:all_gather reduce_scatter:reduce_scatter -- "$work/sharded-checkpoint"
recorded plain 1 data\>0 evaluation\>0 --
OMP_NUM_THREADS=1 recorded loops 1 --
recorded manual 2 forward\>0 optimizer\>0 evaluation\>0 wait\>0 --

# unawaited CODE NAME COMMAND...
unawaited() { expect "$1" timeout 300 "$farandole" run -n 2 --run-dir "$work/$2" --trace-torch -- "${@:3}" "$python" -W ignore "$here/unawaited.py" "$2"; }
unawaited 0 at-end
# A rank that ends early breaks Gloo's connections, as without the recorder.
unawaited 70 early
says err '^farandole run: rank 1 .* ended with exit code 0 before the others; rank 0 '
# A program that cannot be recorded goes on.
unawaited 0 no-place env FARANDOLE_RECORDER_DIR=/proc/none
[[ $(grep -c '^farandole: nothing is recorded: FARANDOLE_RECORDER_DIR' "$work/err") == 1 ]] || fail "no place: $(<"$work/err")"
unawaited 0 alone bash -c '((RANK)) && export FARANDOLE_RANK_PROCESS=other; exec "$@"' -
says err '^farandole: nothing is recorded: not all ranks can record'

# A program that uses the module needs no option. The launcher also merges after a kill.
expect 137 timeout 600 "$farandole" run -n 2 --run-dir "$work/own" -- "$python" "$here/own_words.py" "$work/own" "$bin/farandole-status"
says err 'rank 1 .* was killed by signal 9'
[[ $(grep -c 'step 107: loss is nan; metrics.jsonl has null' "$work/err") == 1 ]] || fail "a loss that is no number: $(<"$work/err")"
expect 0 "$farandole" analyze "$work/own" --format json -o "$work/own.json"
expect 0 "$python" "$here/../expect_run.py" "$work/own.json" "$work/own" 8 0 allreduce:allreduce
zcat "$work/own/timeline.json.gz" >"$work/out"
for span in 'forward of mine' inside; do [[ $(grep -c "\"name\":\"$span\"" "$work/out") == 16 ]] || fail "spans of '$span'"; done
grep -q '"step":107,.*"loss":null' "$work/own/metrics.jsonl" || fail "metrics: $(<"$work/own/metrics.jsonl")"
expect 0 "$farandole" doctor "$work/own"
says out 'the loss is not finite \(NaN or infinite\) since step 107'
exit $((failures > 0))
