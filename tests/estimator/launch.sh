#!/usr/bin/env bash
# farandole::launch: ranks, results and errors of the ranks; nothing stays, also after SIGKILL of the caller.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
unset "${!SLURM_@}" "${!OMPI_MCA_orte_@}" "${!PRTE_MCA_@}"
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
program=$bin/launching

# The form for main: as many ranks as asked for, with the arguments of the program.
cores=$("$bin/farandole" run -n -1 -- sh -c 'echo rank' | grep -c rank)
for np in 1 0; do
  ranks=$((np == 0 ? cores : np))
  expect 0 timeout 300 "$program" main $np "two words"
  [[ $(sort "$work/out") == "$(for ((r = 0; r < ranks; r++)); do echo "rank $r of $ranks: two words"; done)" ]] ||
    fail "np $np: $(<"$work/out")"
  silent err
done
# In a Slurm allocation a trial stays on this machine.
expect 0 timeout 300 env SLURM_JOB_ID=1 SLURM_JOBID=1 SLURM_NODELIST=elsewhere SLURM_JOB_NODELIST=elsewhere "$program" main -2 here
[[ $(wc -l <"$work/out") == 2 ]] || fail "np -2 in an allocation: $(<"$work/out")"
expect 3 timeout 300 "$program" main 2 fail
says err 'rank 1 .* exit code 3'
# Already in a job, the function is called there.
expect 0 timeout 300 "$bin/farandole" run -n 2 -- "$program" main 5 here
[[ $(sort "$work/out" | xargs) == "rank 0 of 2: here rank 1 of 2: here" ]] || fail "in a job: $(<"$work/out")"
expect 0 timeout 300 "$bin/farandole" run -n 2 -- "$program" direct
[[ $(sort "$work/out" | xargs) == "multiplying 5 multiplying 5 result 10 result 10" ]] || fail "in a job: $(<"$work/out")"

# Several calls; errors with the rank and its message. The ranks of the last call get what the earlier ones have returned.
expect 0 timeout 300 "$program" calls
[[ $(sort "$work/out" | sed 's/ on [^ ]*:/:/' | uniq -c | xargs) == "1 20 3 caught 1: rank 1: the disk is full 2 multiplying 10 2 multiplying 5" ]] ||
  fail "three calls: $(<"$work/out")"
expect 0 timeout 300 "$program" together
says out '^caught 64: rank 1 on [^ ]+: rank 1 has no data$'
expect 0 timeout 300 "$program" exit
says out '^caught 9: .*exit code 9'
expect 0 timeout 300 env PATH="$(dirname "$(command -v mpirun)"):/usr/bin:/bin" "$program" streams
[[ $(grep -cE '^\[[01] [0-9:.]{12}\] multiplying 5$' "$work/err") == 2 && ! -s $work/out ]] || fail "streams: $(<"$work/err")"

# SIGTERM reaches the ranks. SIGKILL of the caller ends also ranks that ignore SIGTERM.
source "$(dirname "${BASH_SOURCE[0]}")/alive.sh"
ended_by() {  # SIGNAL WAY: sends it to the caller of ranks that behave in this way; sets $code
  rm -f "$work/here"
  "$program" "$2" "$work/here" >"$work/out" 2>"$work/err" &
  local caller=$! deadline=$((SECONDS + 100))
  until [[ -e $work/here ]] || ((SECONDS > deadline)); do sleep 0.05; done
  [[ -e $work/here && -n $(ls "$TMPDIR") ]] || fail "the ranks have not started: $(<"$work/err")"
  { kill "-$1" $caller; wait $caller; code=$?; } 2>/dev/null
  deadline=$((SECONDS + 60))
  while alive && ((SECONDS < deadline)); do sleep 0.05; done
  ! alive || fail "processes stay after $1"
  [[ -z $(ls "$TMPDIR") ]] || fail "left behind after $1: $(ls -R "$TMPDIR")"
}
ended_by TERM obey
[[ $code == 143 ]] || fail "exit code $code after SIGTERM"
ended_by KILL stay
exit $((failures > 0))
