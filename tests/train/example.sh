#!/usr/bin/env bash
# The README's example trains on one rank without mpirun and on three ranks, with the same loss except for the order of
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
diff <(sed -n '/^```cpp/,/^```/{/^```/d;p}' "$FARANDOLE_SOURCE/README.md") <(sed 1d "$FARANDOLE_SOURCE/tests/train/example.cc") \
  || fail "README shows another program than tests/train/example.cc"
