#!/usr/bin/env bash
# Ranks on four busy hosts start a hundred times, and none crashes.
hosts=4 needs=farandole-bench
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
for ((i = 0; i < 100 && !failures; i++)); do
  salloc -Q -N4 --ntasks-per-node=1 "$bin/farandole" run -- "$bin/farandole" bench allreduce --from 8 --to 8 --repetitions 1 \
    >out 2>&1 || fail "start $i: $(head -n 20 out)"
done
exit $((failures > 0))
