#!/usr/bin/env bash
# Ranks that wait for each other end with one sentence, and ranks that only wait for a working one do not.
set -uo pipefail
bin=${FARANDOLE_BIN:?the folder of the built programs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset OMP_NUM_THREADS FARANDOLE_STALL_SECONDS FARANDOLE_STALL_ABORT

# expect CODE RANKS MISTAKE SENTENCE [NAME=VALUE...]: four at a time, because they wait most of the time.
starter="$bin/farandole run" cases=0
expect() {
  while (($(jobs -rp | wc -l) >= 4)); do wait -n; done
  cases=$((cases + 1))
  run_case "out.$cases" "err.$cases" "$@" &
}
run_case() {
  local out=$1 err=$2 code=$3 ranks=$4 mistake=$5 sentence=$6 ended lines
  env "${@:7}" timeout -k 5 60 $starter -n "$ranks" "$bin/deadlock_program" "$mistake" >"$out" 2>"$err"
  ended=$?
  # Open MPI 4.1 sometimes hangs in its own end, when no rank is left; farandole run then ends it.
  [[ $starter != mpirun* || $ended -lt 124 || -n $(pgrep -f "^$bin/deadlock_program $mistake") ]] || ended=$code
  lines=$(grep -cE '\] (deadlock|stall):|the job ends here' "$err")
  if [[ $ended == "$code" && ($code != 64 || $lines == 1) && (-n $sentence || $lines == 0) ]] && grep -qE -- "$sentence" <(cat "$err"; echo); then
    touch "passed.$out"
  else
    echo "FAILED: $mistake of $ranks ranks (${*:7}), $starter: exit code $ended, not $code, or no such line: $sentence" >&2
    sed 's/^/  /' "$err" >&2
  fi
}

remedy="give all ranks the same number of batches with DistributedSampler, or use Join"
fewer="waits? in allreduce #12 'bucket 0' of the gradients of step 13, rank [12] has ended its (training|session) after 12 steps.*: rank [12] has made 1 step fewer; $remedy"
expect 64 2 batches "\[rank 0\] deadlock: rank 0 $fewer"
expect 64 3 batches "\[rank 0\] deadlock: ranks 0, 1 $fewer" FARANDOLE_TRANSPORT=mpi
expect 64 2 validation "\] deadlock: rank 0 waits in allreduce #0 'accuracy' after 12 steps, rank 1 waits in allreduce #12 'bucket 0' of the gradients of step 13: rank 0 calls it alone; let all ranks take part in the validation"
expect 64 2 final "\] deadlock: rank 0 waits in allreduce #0 'accuracy', rank 1 has ended its .*: rank 0 calls it alone; let all ranks take part"
expect 64 2 crossed "\] deadlock: rank 0 waits in allreduce #0 'weights of the loss' after 7 steps, rank 1 waits in allreduce #7 'bucket 0' of the gradients of step 8: "
# Between nodes, too.
expect 64 3 batches "\[rank 0\] deadlock: ranks 0, 1 $fewer" RANKS_A_NODE=1
expect 64 3 final "\] deadlock: rank 0 waits in allreduce #0 'accuracy', ranks 1, 2 have ended their training and wait for the others: " RANKS_A_NODE=2

# Nobody is in the wrong place.
expect 0 2 late ""
expect 0 3 late "" RANKS_A_NODE=1
expect 0 2 work "stall-abort does not end the job, because rank 0 works" FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=2
expect 0 3 work "stall-abort does not end the job, because rank 0 works" FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=2 RANKS_A_NODE=1
expect 70 2 rest "\[rank 1\] waited .* in allreduce #6 'bucket 0': the job ends here \(stall-abort is 3.0 s\)" FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=3
expect 70 3 rest "waited .* in allreduce #6 'bucket 0': the job ends here" FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=3 RANKS_A_NODE=1

wait
# Without farandole run, a watchdog ends the ranks itself.
starter="mpirun -q"
expect 64 2 batches "\[rank 0\] deadlock: rank 0 $fewer"
expect 70 2 rest "\[rank 1\] waited .* in allreduce #6 'bucket 0': the job ends here" FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=3
wait
[[ $(ls passed.* | wc -l) == "$cases" ]]
