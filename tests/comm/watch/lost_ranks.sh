#!/usr/bin/env bash
# All survivors name a rank that dies in the middle of a collective. They do not name a rank that was asked to end.
source "$(dirname "${BASH_SOURCE[0]}")/stall_job.sh"

for starter in mpirun farandole; do
  codes=(137 70) # mpirun's is that of whom it sees end first
  [[ $starter == mpirun ]] || launcher=("$bin/farandole" run) codes=(137)
  for root_cause in 0 2; do
    start 3 stop $root_cause
    sleep "0.$((RANDOM % 5))"  # at any point of its work
    kill -KILL "$(<pid.$root_cause)"
    ends "${codes[@]}"
    for r in 0 1 2; do
      [[ $r == "$root_cause" || $(grep -cE "\[rank $r\] rank $root_cause \(pid $(<pid.$root_cause) on $(hostname)\) was killed by SIGKILL; rank $r was (in |ending$)" err) == 1 ]] ||
        fail "rank $r does not name it once"
    done
  done
done

launcher=(mpirun -q)
# Between nodes, too, where MPI does not notice it. If the only rank of a node is lost, it does not answer the others.
start 4 stop 3 RANKS_A_NODE=2 FARANDOLE_TRANSPORT=mpi
kill -KILL "$(<pid.3)"
ends 137 70
for r in 0 1 2; do has "\[rank $r\] rank 3 \(pid $(<pid.3) on .*\) was killed by SIGKILL; rank $r was" || fail "rank $r does not name it"; done
start 3 stop 2 RANKS_A_NODE=2 FARANDOLE_TRANSPORT=mpi
kill -KILL "$(<pid.2)"
ends 137 70
has '\[rank 0\] rank 2 \(on .*\) does not answer: it has ended, or its host has failed; rank 0 was' || fail "the only rank of its node"

start 2 exit 1
touch block
ends 3 70
has "\[rank 0\] rank 1 .* ended with exit code 3; rank 0 was in" || fail "its exit code"

# A program's own handler of SIGTERM stays in place. Without one, SIGTERM ends the ranks as it does without a watchdog.
start 2 handler 9
kill -TERM "$(<pid.0)"
ends 9
start 2 stop 9
kill -TERM "$(<pid.0)"
ends 143
has 'was killed' && fail "a rank was told to end, and is called lost"
exit $((failures > 0))
