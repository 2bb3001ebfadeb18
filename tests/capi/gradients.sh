#!/usr/bin/env bash
# The gradients of farandole/capi.h from a program in C; what is reported if a rank lacks one, or leaves.
source "$(dirname "$0")/../trainer/common.sh"
unset FARANDOLE_STALL_SECONDS FARANDOLE_STALL_ABORT
job() { timeout 120 "$bin/farandole" run -n "$1" -- "$bin/capi_gradients" "${@:2}" >out 2>err; }
job 4 && grep -qx done out || fail "the functions"
FARANDOLE_STALL_SECONDS=1 job 2 stalls || fail "a rank that is late"
grep -q "rank 1.* keeps other ranks waiting: .*; not produced yet: w8, w7, w6, w5" err || fail "the report of a rank that is late"
job 3 leaves
[[ $? == 64 ]] && grep -q "rank 2 has ended its session after 0 steps" err || fail "a rank that leaves"
job 3 leaves killed
[[ $? == 137 ]] && grep -q "rank 2 .*was killed by SIGKILL" err || fail "a rank that is killed"
