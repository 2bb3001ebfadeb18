#!/usr/bin/env bash
# farandole bench checkpoint: what it prints and what it refuses.
source "$(dirname "$0")/common.sh"
bench=(timeout 300 "$bin/farandole" run -n 2 -- "$bin/farandole" bench checkpoint --model mnist --repetitions 2 --folder "$work")

"${bench[@]}" --blocks 1 --block-steps 2 --format json >out 2>err || fail "a run"
/usr/bin/python3 - <<'PYTHON' || fail "JSON"
import json
bench = json.load(open("out"))
[result] = bench["results"]
assert result["ranks"] == 2 and result["state_bytes"] > 80_000, bench
times = ("stall_ms", "memcpy_ms", "write_s", "raw_write_s", "unchecked_write_s", "restore_s", "raw_read_s", "memory_read_s", "block_with_checkpoint_s", "block_s")
assert all(result[name] > 0 for name in times), bench
PYTHON
"${bench[@]}" --blocks 0 >out 2>err || fail "without training"
[[ $(grep -c . out) == 7 ]] && grep -q 'restore with verification' out || fail "the table"
"$bin/farandole" bench checkpoint --help >out 2>err && grep -q tests/compare/checkpoint out || fail "where other programs are compared"
for bad in "--model x" "--repetitions 0" "--blocks -1" "--format xml" "--folder nowhere/there"; do
  read -ra option <<<"$bad"
  "${bench[@]}" "${option[@]}" >out 2>err && fail "$bad"
  [[ $(grep -c '^farandole bench: ' err) == 1 ]] || fail "not one line: $bad"
done
[[ $(ls -A) == $'err\nout' ]] || fail "left behind: $(ls -A)"
