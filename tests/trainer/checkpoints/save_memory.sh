#!/usr/bin/env bash
# What rank 0 needs for checkpoints, at its peak: one copy of the state and at most 64 MiB more, however large the state is.
source "$(dirname "$0")/../common.sh"
# Almost all of the state, 315 MB, is a layer of 5120 x 5120 and its two moments.
train 2 --model mlp --data synthetic --width 5120 --layers 3 --batch-size 4 --optimizer adamw --lr 1e-6 --steps 12 \
  --checkpoint-every 1steps --timeline off --run-dir run || fail "the run"
/usr/bin/python3 - <<'PYTHON' || fail "memory"
import glob, json, os
files = sorted(glob.glob("run/checkpoints/*.h5"))
state = os.path.getsize(files[-1])
# Rank 1 trains as rank 0 does, and saves nothing.
saving, other = (json.load(open(f"run/launch/rank-{rank:04}.json"))["peak_memory_bytes"] for rank in (0, 1))
print(f"state {state >> 20} MiB, rank 0 {saving >> 20} MiB, rank 1 {other >> 20} MiB: {(saving - other - state) / 2**20:.1f} MiB more than a copy")
assert state > 300e6 and len(files) >= 2, files
assert 0.9 * state < saving - other < state + (64 << 20)
PYTHON
