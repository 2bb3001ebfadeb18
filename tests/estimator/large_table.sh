#!/usr/bin/env bash
# fit, transform and evaluate on a table of 3 GiB, under a limit of 1 GiB for the memory of all processes together.
source "$(dirname "$0")/models.sh"
v1=/sys/fs/cgroup/memory v2=/sys/fs/cgroup
if [[ -d $v1 ]]; then
  parent=$v1$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup) limit=memory.limit_in_bytes peak=memory.max_usage_in_bytes
else
  parent=$v2$(sed -n 's/^0:://p' /proc/self/cgroup) limit=memory.max peak=memory.peak
fi
group=${parent%/*}/farandole-test-$$
mkdir "$group" 2>/dev/null && echo $((1 << 30)) >"$group/$limit" 2>/dev/null || {
  rmdir "$group" 2>/dev/null
  echo "skipped: no control group can be made here"
  exit 77
}
trap 'rm -rf "$work"; rmdir "$group"' EXIT

/usr/bin/python3 - <<'PYTHON' || fail "the table cannot be made"
import h5py, numpy
random = numpy.random.default_rng(1)
rows, size = 6144, 512 << 10
with h5py.File("large.h5", "w") as file:
    x = file.create_dataset("x", (rows, size), "u1")
    y = numpy.zeros(rows, "f4")
    for row in range(0, rows, 64):
        level = random.integers(0, 200, 64)
        x[row:row + 64] = numpy.repeat(level.astype("u1"), size).reshape(64, size)
        y[row:row + 64] = level / 100 - 1
    file["y"] = y
PYTHON
[[ $(stat -c %s large.h5) -ge $((3 << 30)) ]] || fail "the table is not large"
limited() {
  (echo "$BASHPID" >"$group/cgroup.procs" && exec timeout 500 farandole "$@") >out 2>err || fail "farandole $1"
}
limited fit -n 2 --store runs --run large --table large.h5 --features x --label y --model mean.pt --loss mse --lr 0.1 --batch-size 4 \
  --validation 0.1 --metrics mae
grep -qE '^epoch 1 .*training mae .*validation loss 0\.0' out || fail "the fit learns nothing"
limited transform -n 2 --store runs --table large.h5 --output out.h5
[[ $(stat -c %s out.h5) -ge $((3 << 30)) ]] || fail "transform leaves out a part of the table"
rm out.h5
limited evaluate -n 2 --store runs --table large.h5
grep -qE '^mae +(0\.0|[0-9.]+e-)' out || fail "evaluate"
echo "the most memory of all processes, with the page cache: $(($(<"$group/$peak") >> 20)) MiB"
