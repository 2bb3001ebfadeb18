#!/usr/bin/env bash
# Stopped and stuck ranks are named, and the job continues or ends as expected.
source "$(dirname "${BASH_SOURCE[0]}")/stall_job.sh"

for root_cause in 0 1; do
  start 3 stop $root_cause FARANDOLE_STALL_SECONDS=1
  kill -STOP "$(<pid.$root_cause)"
  until_true has "^  rank $root_cause \(pid $(<pid.$root_cause) on .*is missing: it is stopped \(state T\)"
  for r in 0 1 2; do
    [[ $r == "$root_cause" ]] || until_true has "^farandole: \[rank $r\] is stalled: it is in .*; pid $(<pid.$r) on $(hostname)"
  done
  [[ $(grep -cE "^  rank $root_cause .* is missing: it is stopped" err) == 1 ]] || fail "not one summary of it"
  kill -CONT "$(<pid.$root_cause)"
  until_true has 'the stall in .* is over, after'
  touch stop
  ends 0
done

start 3 data 1 FARANDOLE_STALL_SECONDS=1
touch block
until_true has "stall: ranks 0, 2 have waited [0-9.]+ s in allreduce #[0-9]+ 'bucket 0' \(fc1.weight, fc1.bias\)"
has "^  rank 1 \(pid $(<pid.1) on $(hostname)\) is missing: it is stuck in data loading" || fail "the cause"
until_true has "^farandole: \[rank 1\] keeps other ranks waiting: it is stuck in data loading \(data 'load a batch'.*not produced yet: fc1.bias"
shows() { grep -A 80 "^farandole: \[rank $1\] [ik]" err | sed '1d;/^farandole/,$d' | grep -qE -- "$2"; }
until_true shows 1 '^    main\+0x'
for r in 0 2; do until_true shows $r '^    main\+0x|does not answer'; done
rm block
until_true has "the stall in allreduce #[0-9]+ 'bucket 0' is over, after"
touch stop
ends 0

# Between nodes, one rank prints the summary, even if rank 0 or its whole node is stopped.
start 6 data 5 FARANDOLE_STALL_SECONDS=1 RANKS_A_NODE=2
touch block
until_true has '^  rank 5 .* is missing: it is stuck in data loading'
until_true has '^farandole: \[rank 5\] keeps other ranks waiting: it is stuck in data loading .*not produced yet: fc1.bias'
[[ $(grep -c '] stall: ranks 0-4 have waited' err) == 1 ]] || fail "not one summary of 3 nodes"
rm block
until_true has "the stall in .* is over, after"
touch stop
ends 0
start 4 stop 0 FARANDOLE_STALL_SECONDS=1 RANKS_A_NODE=2
kill -STOP "$(<pid.0)"
until_true has '^  rank 0 .* is missing: it is stopped \(state T\)'
kill -CONT "$(<pid.0)"
until_true has 'the stall in .* is over, after'
[[ $(grep -c '] stall: ' err) == 1 ]] || fail "not one summary without rank 0"
touch stop
ends 0
start 4 stop 0 FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=4 RANKS_A_NODE=2
kill -STOP "$(<pid.0)" "$(<pid.1)"
ends 70
for r in 0 1; do has "^  rank $r .* is missing: it does not answer: all ranks of its host are stopped" || fail "rank $r of the node"; done
[[ $(grep -c '] stall: ' err) == 1 ]] || fail "not one summary without a node"

# Stopped ranks are removed, whichever launcher started them.
start 2 stop 0 FARANDOLE_STALL_ABORT=3
kill -STOP "$(<pid.0)"
ends 70
has "is stopped \(state T\)" || fail "the cause"
launcher=("$bin/farandole" run)
start 3 stop 1 FARANDOLE_STALL_SECONDS=1 FARANDOLE_STALL_ABORT=3
kill -STOP "$(<pid.1)"
ends 70

exit $((failures > 0))
