#!/usr/bin/env bash
# What goes wrong in a training in Python is named with its rank, phase and line: with Gloo, and with our backend.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
unset "${!SLURM_@}" FARANDOLE_STALL_ABORT FARANDOLE_RANK_PROCESS MASTER_ADDR MASTER_PORT
source "$FARANDOLE_SOURCE/tests/wheel_python.sh"
wheel_python 2>/dev/null || { echo "skipped: no PyTorch for Python"; exit 77; }
export PYTHONPATH=$FARANDOLE_SOURCE/src/farandole/python:$PYTHONPATH FARANDOLE_LIBRARY=${FARANDOLE_LIBRARY:-$bin/../lib/libfarandole_c.so}
export FARANDOLE_STALL_SECONDS=1
program=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/faults.py
here=$(hostname)
mkfifo "$work/gate"

start() {
  last="faults.py $*"
  rm -rf "$work/run"
  timeout 300 "$bin/farandole" run -n 3 --run-dir "$work/run" -- /usr/bin/python3 -W ignore "$program" "$1" "$work" "${@:2}" \
    >"$work/out" 2>"$work/err" &
  job=$!
}
# Returns 1 if it does not come, and ends the job: what follows would only tell of that.
until_says() {
  for ((i = 0; i < 2500; i++)); do
    grep -qE -- "$1" "$work/err" && return
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  says err "$1"
  kill "$job" 2>/dev/null
  wait "$job"
  return 1
}
go_on() { timeout 10 bash -c ': >"$1"' - "$work/gate"; }
ends() {
  local code=0
  wait "$job" || code=$?
  [[ $code == "$1" ]] || fail "exit code $code, not $1, of: $last
$(tail -n 30 "$work/err")"
}
times() { [[ $(grep -cE -- "$2" "$work/err") == "$1" ]] || fail "not $1 times '$2' in err of: $last
$(tail -n 30 "$work/err")"; }
# The line of faults.py with this text.
line() { grep -nF -- "$1" "$program" | head -1 | cut -d: -f1; }
# A report of the rank itself has the line in any case: a rank that answers late, or comes to its place late, reports again.
stuck() {
  until_says "rank 1.* (is missing|keeps other ranks waiting): it is stuck in data loading, .*faults.py:$(line '# waits for the gate') in stuck_in_lock, for" &&
    go_on &&
    until_says "rank 2.* (is missing|keeps other ranks waiting): it is still computing, .*faults.py:$(line 'libc.close(libc.open') in stuck_with_gil, for" &&
    go_on
}
diagnosed() {
  expect 0 "$bin/farandole" doctor "$work/run"
  tr -s '\n ' ' ' <"$work/out" >"$work/err"
  last="doctor after $last"
  says err "$1"
}

# analyzed RANK PHASE: the report of what was recorded until the end.
analyzed() {
  [[ -s $work/run/timeline.json.gz ]] || expect 0 "$bin/farandole" timeline merge "$work/run"
  expect 0 "$bin/farandole" analyze "$work/run"
  tr -s '\n ' ' ' <"$work/out" >"$work/err"
  says err "Rank $1 \(.*\) is [0-9.]+ ms late in most steps, delayed in $2"
}

case_1() {
  start gloo 1:lock 2:gil 2:exception
  stuck || return
  ends 1
  times 1 Traceback
  says err "^farandole: rank 2 on $here: the program ended with an exception:"
  says err '^ValueError: the batch has no samples$'
  diagnosed "^Rank 2 on $here ended with exit code 1 \(ValueError: the batch has no samples\) in step [0-9]+, in (or after )?forward"
}
case_2() {
  start farandole 1:lock 2:gil 1:mismatch
  stuck || return
  ends 64
  times 1 Traceback
  says err 'the ranks make different calls of the same collective'
}
case_3() {
  start gloo 2:slow-backward 1:mismatch
  ends 64
  says err "deadlock: .*rank 1 waits in broadcast #[0-9]+ .*at .*faults.py:$(line 'dist.broadcast(value, 0) if') in main"
  analyzed 2 backward
}
case_4() {
  declare -A slow=([gloo]=1:slow-data [farandole]=0:uneven) late=([gloo]='1 data' [farandole]='0 backward')
  for backend in gloo farandole; do
    start $backend ${slow[$backend]} 1:killed
    ends 137
    times 0 Traceback
    says err '^farandole: \[rank [02]\] rank 1 \(pid [0-9]+ on .*\) was killed by SIGKILL; rank [02] was in '
    diagnosed "^Rank 1 on $here was killed by signal 9 .* in step [0-9]+, "
    analyzed ${late[$backend]}
  done
}
for number in ${1:-1 2 3 4}; do case_$number; done
exit $((failures > 0))
