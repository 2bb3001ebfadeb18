#!/usr/bin/env bash
# farandole::launch and farandole fit in an allocation of two hosts: all tasks, a number of ranks, and a trial on one host.
hosts=2 needs=launching
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"

# allocated COMMAND...: in an allocation of two hosts with one task each; the output is in $work/out and $work/err.
allocated() { expect 0 timeout 300 salloc --quiet --nodes=2 --ntasks=2 --overcommit "$@"; }
allocated "$bin/launching" main 0 "on both hosts"
[[ $(sort out | xargs) == "rank 0 of 2: on both hosts rank 1 of 2: on both hosts" ]] || fail "np 0: $(<out)"
allocated "$bin/launching" main 4 four
[[ $(wc -l <out) == 4 ]] || fail "np 4: $(<out)"
allocated "$bin/launching" main -2 trial
[[ $(wc -l <out) == 2 ]] || fail "np -2: $(<out)"
# Arguments and results reach ranks on the other host through the working folder, which stays clean.
allocated "$bin/launching" calls
[[ $(sort out | sed 's/ on [^ ]*:/:/' | uniq -c | xargs) == "1 20 3 caught 1: rank 1: the disk is full 2 multiplying 10 2 multiplying 5" ]] ||
  fail "three calls: $(<out)"
[[ -z $(find . -maxdepth 1 -name 'farandole-*') ]] || fail "left behind: $(ls)"
"$bin/export_models" && printf 'x,y,z\n' >line.csv && for ((i = 0; i < 200; i++)); do echo "$((i % 7)),$((i % 5)),$((i % 7 + i % 5))"; done >>line.csv
allocated "$bin/farandole" fit -n 0 --table line.csv --features x,y --label z --model line.pt --loss mse --epochs 2
says out 'on 2 ranks'
[[ -s runs/fit-0001/model.pt ]] || fail "the fit leaves no model"
exit $((failures > 0))
