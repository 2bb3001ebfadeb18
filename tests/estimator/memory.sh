#!/usr/bin/env bash
# transform and evaluate take wide rows in small batches: with a limit for the memory of each process that
# is less than what 256 rows need.
source "$(dirname "$0")/../trainer/common.sh"
need_h5py
export PATH=$bin:$PATH
limit=$((640 << 10))  # KiB
(ulimit -d $limit && /usr/bin/python3 -c "bytearray($limit << 10)") 2>/dev/null && { echo "skipped: ulimit -d has no effect here"; exit 77; }
"$bin/export_models" || fail "models"
/usr/bin/python3 - <<'PYTHON' || fail "the table cannot be made"
import h5py, numpy
rows, size = 320, 512 << 10
level = numpy.arange(rows) % 200
with h5py.File("wide.h5", "w") as file:
    x = file.create_dataset("x", (rows, size), "u1")
    for row in range(rows):
        x[row] = level[row]
    file["y"] = (level / 100 - 1).astype("f4")
PYTHON
limited() {
  (ulimit -d $limit && exec timeout 300 farandole "$@") >out 2>err || fail "farandole $1"
}
limited fit --store runs --table wide.h5 --features x --label y --model mean.pt --loss mse --lr 0.1 --batch-size 4
limited transform --store runs --table wide.h5 --output out.h5
limited evaluate --store runs --table wide.h5
grep -q '^rows  *320$' out || fail "evaluate"
/usr/bin/python3 - <<'PYTHON' || fail "what transform has written"
import h5py, numpy
table, out, state = h5py.File("wide.h5"), h5py.File("out.h5"), h5py.File("runs/fit-0001/state.h5")
weight, bias = state["fc.weight"][0, 0], state["fc.bias"][0]
for row in range(320):
    assert numpy.array_equal(out["x"][row], table["x"][row])
    assert abs(out["y__output"][row, 0] - ((row % 200 / 100 - 1) * weight + bias)) < 1e-4
PYTHON
