#!/usr/bin/env bash
# farandole bench checkpoint: what it prints and what it refuses.
source "$(dirname "$0")/common.sh"
bench=(timeout 100 "$bin/farandole" run -n 2 -- "$bin/farandole" bench checkpoint --model mnist --repetitions 2 --folder "$work")

"${bench[@]}" --blocks 1 --block-steps 2 --format json >out 2>err || fail "a run"
/usr/bin/python3 - <<'PYTHON' || fail "JSON"
import json
bench = json.load(open("out"))
assert bench["ranks"] == 2 and bench["state_bytes"] > 80_000, bench
assert len(bench["results"]) == 5 and all(result["ms"] > 0 and result["beside_ms"] > 0 for result in bench["results"]), bench
PYTHON
"${bench[@]}" --blocks 0 >out 2>err || fail "without training"
[[ $(grep -c . out) == 6 ]] && grep -q 'read and verify' out || fail "the table"
for bad in "--model x" "--repetitions 0" "--blocks -1" "--format xml" "--folder nowhere/there"; do
  read -ra option <<<"$bad"
  "${bench[@]}" "${option[@]}" >out 2>err && fail "$bad"
  [[ $(grep -c '^farandole bench: ' err) == 1 ]] || fail "not one line: $bad"
done
[[ $(ls -A) == $'err\nout' ]] || fail "left behind: $(ls -A)"
