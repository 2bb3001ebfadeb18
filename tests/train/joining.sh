#!/usr/bin/env bash
# Ranks with different numbers of batches end together. If a rank fails after others have joined, the job ends as usual.
source "$(dirname "$0")/../trainer/common.sh"
run() {
  timeout 300 "$bin/farandole" run -n 3 -- "$bin/joining" "$@" >out 2>err
}
run || fail "uneven batches"
grep -q "rank 2 was last" out || fail "another rank was last"
for how in throw together; do
  run "$how"
  code=$?
  [[ $code == 65 ]] || fail "$how: exit code $code"
  [[ $(grep -c "the sixth batch is damaged" err) -ge 1 ]] || fail "$how: the cause is not told"
done
exit 0
