#!/usr/bin/env bash
# However a rank of a Python program ends, the job ends with its exit code, and one message names the rank.
source "$(dirname "${BASH_SOURCE[0]}")/../launch/expect.sh"
python=/usr/bin/python3
[[ -x $python ]] || { echo "skipped: no $python"; exit 77; }
export PYTHONPATH=$FARANDOLE_SOURCE/src/farandole/python FARANDOLE_LIBRARY=${FARANDOLE_LIBRARY:-$bin/../lib/libfarandole_c.so}
unset "${!SLURM_@}" FARANDOLE_STALL_SECONDS FARANDOLE_STALL_ABORT FARANDOLE_RANK_PROCESS
program=$(dirname "${BASH_SOURCE[0]}")/exits.py
here=$(hostname)
run() { timeout 100 "$bin/farandole" run "$@"; }
ends() { expect "$1" run -n 3 -- "$python" "$program" "$2"; }
times() { [[ $(grep -cE -- "$2" "$work/err") == "$1" ]] || fail "not $1 times '$2' in err of: $last
$(tail -n 30 "$work/err")"; }

ends 3 exit
times 1 "^farandole: rank 2 on $here: the program ended with exit code 3\$"
times 2 '^farandole'
says err '^farandole run: rank 2 \(host .*\) failed first: exit code 3'
ends 1 text
times 1 '^no such model$'
ends 1 exception
times 1 'Traceback'
times 1 '^ValueError: the batch has no samples$'
says err "^farandole: rank 2 on $here: the program ended with an exception:\$"
ends 1 hook
times 1 '^my hook got ValueError$'
says err "^farandole: rank 2 on $here: the program ended with ValueError: the batch has no samples\$"
ends 3 all
times 1 '^farandole: rank [0-2] on .*: the program ended with exit code 3$'
ends 70 _exit
says err '^farandole: \[rank [01]\] rank 2 \(pid [0-9]+ on .*\) ended with exit code 0; rank [01] was in allreduce #1'
times 0 Traceback
ends 137 killed
says err '^farandole: \[rank [01]\] rank 2 \(pid [0-9]+ on .*\) was killed by SIGKILL; rank [01] was in '
times 0 Traceback
ends 139 crash
says err '^  File ".*exits.py", line [0-9]+ in <lambda>$'
says err 'rank 2 \(pid [0-9]+ on .*\) was killed by SIGSEGV'
ends 143 terminated
says err 'failed first: it was killed by signal 15'
times 0 Traceback
ends 130 interrupted
times 1 "^farandole: rank 2 on $here: interrupted by SIGINT\$"
times 0 Traceback

# A script that saves when it is asked to stop.
run -n 2 --run-dir "$work/run" -- "$python" "$program" stop >"$work/out" 2>"$work/err" &
job=$! last=stop
until [[ $(grep -c begun "$work/out") == 2 ]] || ! kill -0 "$job"; do sleep 0.05; done
kill -TERM "$(ps -o pid= --ppid "$job" | head -1)"
wait "$job"
code=$?
[[ $code == 75 ]] || fail "exit code $code, not 75, after SIGTERM: $(<"$work/err")"
times 0 'farandole: rank'

for case in done mpi-first; do
  ends 0 $case
  [[ $(grep -c 'is done' "$work/out") == 3 ]] || fail "$case: $(<"$work/out")"
  times 0 '^farandole'
done
exit $((failures > 0))
