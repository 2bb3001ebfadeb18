#!/usr/bin/env bash
# Floors of the benchmarks, far below what a quiet machine measures: within a node our allreduce is not slower than MPI's from 4 KiB,
# and a span costs less than 2.5 times its two clock reads. Part of the soak lane.
source "$(dirname "$0")/../bench/common.sh"
timeout 200 "$bin/farandole" run -n 2 -- "$bin/farandole" bench allreduce --from 4K --to 16M --format json >out 2>err || fail "bench allreduce"
cp out allreduce.json
timeout 300 "$bin/farandole" run -n 1 -- "$bin/farandole" bench timeline --repetitions 60 --events 40000 --format json >out 2>err || fail "bench timeline"
/usr/bin/python3 - <<'PYTHON' || fail "a floor"
import json
for result in json.load(open("allreduce.json"))["results"]:
    assert result["ours_us"] <= result["mpi_us"], result
for result in json.load(open("out"))["results"]:
    assert result["span_ns"] <= 2.5 * result["clock_pair_ns"], result
PYTHON
