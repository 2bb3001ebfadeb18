#!/usr/bin/env bash
# Each start of a run keeps what it has recorded: a command that has nothing left to do changes nothing, and a start after a crash
# keeps the recorders of the one that crashed.
source "$(dirname "$0")/../common.sh"
options=(--model mlp --data synthetic --width 16 --log-steps 5 --run-dir run)
train 2 "${options[@]}" --steps 20 || fail "the first start"
cp -a run before
for launcher in "" "--trace-mpi --run-dir run"; do
  # shellcheck disable=SC2086
  timeout 300 "$bin/farandole" run -n 2 $launcher -- "$bin/farandole" train "${options[@]}" --steps 20 >out 2>err || fail "the same command with '$launcher'"
  grep -q 'nothing left to do' out || fail "it trained again with '$launcher'"
  for kept in run.json timeline.json.gz recorder; do
    diff -r "before/$kept" "run/$kept" || fail "$kept is not as the first start left it, with '$launcher'"
  done
  [[ ! -e run/starts ]] || fail "a start that did nothing is kept, with '$launcher'"
done

# A rank is killed.
timeout 300 "$bin/farandole" run -n 2 --run-dir run -- "$bin/farandole" train "${options[@]}" --run-dir "$work/run" --epochs 1000000 >out 2>err &
launcher=$!
await "the run ended early" grep -qs '"step":40,' run/metrics.jsonl
kill -KILL "$(pgrep -n -f "^[^ ]*farandole-train .*$work/run")"
wait $launcher && fail "the run should fail"
cmp before/timeline.json.gz run/starts/0001/timeline.json.gz || fail "the first start's trace is not kept"
[[ $(ls run/starts/0001/recorder | xargs) == "rank-0000.ftl rank-0001.ftl" ]] || fail "the first start's recorders are not kept"
grep -q '"ended"' run/starts/0001/run.json || fail "the first start's run.json is not kept"
cp -a run/recorder crashed

train 2 "${options[@]}" --epochs 1000000 --steps "$(($(ls run/checkpoints | tail -n 1 | tr -dc 0-9 | sed "s/^0*//") + 20))" || fail "the start after the crash"
[[ $(ls run/starts | xargs) == "0001 0002" ]] || fail "starts: $(ls run/starts)"
diff -r crashed run/starts/0002/recorder || fail "the crashed start's recorders are not kept"
"$bin/farandole" analyze run/starts/0002 >out 2>err || fail "analyzing the crashed start"
"$bin/farandole" doctor run/starts/0002 >out 2>err
grep -q 'signal 9' out || fail "the doctor does not know how the crashed start ended"
"$bin/farandole" analyze run >out 2>err || fail "analyzing the last start"
