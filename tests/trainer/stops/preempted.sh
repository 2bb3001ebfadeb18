#!/usr/bin/env bash
# A signal to the launcher or to any rank, or the near end of the job: the ranks save and exit with code 75, and the same command
# continues from there.
source "$(dirname "$0")/../common.sh"
need_h5py
command=("$bin/farandole" run -n 2 -- "$bin/farandole" train --model mlp --data synthetic --width 16 --epochs 1000000 --log-steps 5
         --checkpoint-every never --timeline off)

# preempt RUN COMMAND…: starts the run, calls prepare once it trains, and sends each of $signals to $target: the launcher, or the
# rank of this number
target=launcher signals=USR1
preempt() {
  local run=$1 to signal
  shift
  env --default-signal=INT "$@" --run-dir "$run" >out 2>err &
  local launcher=$!
  await "the run ended early: $*" test -s "$run/metrics.jsonl"
  prepare
  to=$launcher
  [[ $target == launcher ]] || to=$(<"pid.$target")
  for signal in $signals; do kill "-$signal" "$to" 2>/dev/null; done
  wait $launcher
  code=$?
  [[ $code == 75 ]] || fail "exit code $code instead of 75: $*"
}
prepare() { :; }

preempt run "${command[@]}"
grep -q 'stop requested: saved at step' out || fail "it does not say so"
grep -q '"exit_code": 75' run/run.json || fail "run.json: $(cat run/run.json)"
saved=$(ls run/checkpoints | wc -l)
[[ $saved == 1 ]] || fail "$saved checkpoints"
/usr/bin/python3 - <<'PYTHON' || fail "it has a score, though nothing was evaluated at its step"
import glob, math, h5py
assert math.isnan(h5py.File(glob.glob("run/checkpoints/*.h5")[0]).attrs["score"])
PYTHON
"${command[@]}" --run-dir run --steps 1 >out 2>err || fail "resuming"
grep -q 'nothing left to do' out || fail "it did not resume"

# The ranks stop at once, however seldom they log, and also if they do not communicate in each step.
for options in "--synchronize gradients" "--synchronize parameters:epoch" "--compression bfloat16"; do
  read -ra choice <<<"$options"
  preempt seldom "${command[@]}" --log-steps 1000000000 --steps 20000 "${choice[@]}"
  rm -r seldom
done

# Any of the three signals to any process has this effect. More of them to a rank change nothing.
command=("$bin/farandole" run -n 2 -- bash -c "echo \$\$ >pid.\$OMPI_COMM_WORLD_RANK; exec \"\$@\"" bash "${command[@]:5}")
for case in "launcher TERM INT" "0 TERM TERM TERM TERM TERM" "1 INT INT USR1 TERM"; do
  read -r target signals <<<"$case"
  preempt stopped "${command[@]}"
  [[ $(ls stopped/checkpoints | wc -l) == 1 ]] || fail "checkpoints after $case: $(ls stopped/checkpoints)"
  grep -q 'stop requested: saved at step' out || fail "it does not say so after $case"
  rm -r stopped
done
target=launcher signals=USR1

# The end of the job is near. If it is not known, a message says so.
SLURM_JOB_END_TIME=$(($(date +%s) + 100)) "${command[@]}" --run-dir ending --stop-before 1h >out 2>err
[[ $? == 75 ]] && grep -q 'stop requested: saved at step' out || fail "--stop-before"
"${command[@]}" --run-dir ending --steps 5 --stop-before 1h >out 2>err || fail "--stop-before without an end"
grep -q -- '--stop-before has no effect' err || fail "it does not say that the end is unknown"

# Neither the trace nor run.json can be written, as on a full disk: the checkpoint is still valid.
prepare() {
  mkdir -p full/timeline.json.gz/in-the-way
  rm full/run.json && mkdir -p full/run.json/in-the-way
}
preempt full "${command[@]}" --timeline all
[[ $(grep -c 'could not be written.*farandole timeline merge full' err) == 1 ]] || fail "it does not say what to do about the trace"
[[ $(ls full/recorder | xargs) == "rank-0000.ftl rank-0001.ftl" ]] || fail "recorders: $(ls full/recorder)"
"$bin/farandole" timeline merge full -o merged.json.gz >out 2>err || fail "merging later"
