#!/usr/bin/env bash
# The example of docs/api.md trains on one rank without mpirun and on three ranks, with the same loss except for the order of
# sums, and writes a timeline.
source "$(dirname "$0")/../trainer/common.sh"
timeout 100 "$bin/example" >one || fail "one rank without mpirun"
FARANDOLE_RUN_DIR=$work/run timeout 100 "$bin/farandole" run -n 3 -- "$bin/example" >three 2>err || fail "three ranks"
/usr/bin/python3 - one three <<'PYTHON' || fail "$(cat one three)"
import sys
one, three = (float(open(name).read().split()[1]) for name in sys.argv[1:])
assert one < 0.5 and three < 0.5, (one, three)
PYTHON
[[ -s run/timeline.json.gz ]] || fail "no timeline"
"$bin/farandole" analyze run >out 2>err || fail "the timeline is not analyzed"
/usr/bin/python3 - "$FARANDOLE_SOURCE" <<'PYTHON' || fail "docs/api.md shows another program than tests/train/example.cc"
import pathlib, sys
source = pathlib.Path(sys.argv[1])
shown = source.joinpath("docs/api.md").read_text().split("```cpp\n", 1)[1].split("```", 1)[0]
program = source.joinpath("tests/train/example.cc").read_text().split("\n", 1)[1]
assert shown == program
PYTHON
