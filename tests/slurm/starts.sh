#!/usr/bin/env bash
# Ranks on two hosts start a hundred times, and none crashes. Their program takes long to load, so they do not start together.
hosts=2 needs=farandole-bench
source "$(dirname "${BASH_SOURCE[0]}")/sandbox.sh"
for ((i = 0; i < 100 && !failures; i++)); do
  salloc -Q -N2 --ntasks-per-node=2 "$bin/farandole" run -- "$bin/farandole" bench allreduce --from 8 --to 8 --repetitions 1 \
    >out 2>&1 || fail "start $i: $(head -n 20 out)"
done
exit $((failures > 0))
