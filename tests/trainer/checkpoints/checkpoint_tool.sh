#!/usr/bin/env bash
# farandole checkpoint diff and export: what they print and write, and what they refuse.
source "$(dirname "$0")/../common.sh"
need_h5py
train 2 --model mlp --data synthetic --width 16 --optimizer adamw --timeline off --checkpoint-every 2epochs --epochs 4 --run-dir a || fail "a run"
train 2 --model mlp --data synthetic --width 16 --timeline off --run-dir b || fail "another run"
train 2 --model mlp --data synthetic --width 8 --timeline off --run-dir c || fail "a run with another model"

# tool CODE ARGUMENT…
tool() {
  local code=$1
  shift
  timeout 300 "$bin/farandole" checkpoint "$@" >out 2>err
  local got=$?
  [[ $got == "$code" ]] || fail "exit code $got instead of $code: $*"
}
mapfile -t files < <(ls a/checkpoints/*.h5)
tool 0 diff a a
[[ $(<out) == "all arrays are equal" ]] || fail "a run and itself"
tool 1 diff "${files[0]}" a
/usr/bin/python3 - "${files[0]}" "${files[-1]}" <<'PYTHON' || fail "the differences"
import re, sys, h5py, numpy
a, b = (h5py.File(name) for name in sys.argv[1:])
names = []
a.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
expected = {}
for name in names:
    x, y = (numpy.atleast_1d(f[name][()]) for f in (a, b))
    if not numpy.array_equal(x, y):
        expected["/" + name] = (int((x != y).sum()), x.size, float(numpy.abs(x.astype("float64") - y.astype("float64")).max()))
found = {}
for line in open("out"):
    name, different, elements, largest = re.fullmatch(r"(\S+) +(\d+) of (\d+) elements differ, by at most (\S+)\n", line).groups()
    found[name] = (int(different), int(elements), float(largest))
assert found.keys() == expected.keys() and len(found) > 8, (found.keys() ^ expected.keys())
for name in found:
    assert found[name][:2] == expected[name][:2] and numpy.isclose(found[name][2], expected[name][2], rtol=1e-4), (name, found[name], expected[name])
PYTHON
tool 1 diff a b
grep -qE '^/optimizer/state/fc1.weight/exp_avg +only in the first$' out || fail "an array of one file"
tool 1 diff b c
grep -qE '^/model/fc1.weight +float32 \[16, 784\] and float32 \[8, 784\]$' out || fail "another shape"

# Another format version is shown as the file has it: one of version 1 lacks three attributes.
/usr/bin/python3 - "${files[0]}" <<'PYTHON' || fail "a file of format version 1"
import ctypes, shutil, struct, sys, h5py, numpy
def text_of(value): return value.decode() if isinstance(value, bytes) else value
shutil.copy(sys.argv[1], "old.h5")
xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
xxh3.restype, xxh3.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t)
with h5py.File("old.h5", "r+") as file:
    root = file.attrs
    for name in ("best_score", "best_step", "versions"): del root[name]
    root["format_version"] = 1
    arrays = []
    file.visititems(lambda name, item: arrays.append(("/" + name, item)) if isinstance(item, h5py.Dataset) else None)
    (score,) = struct.unpack("<Q", struct.pack("<d", root["score"]))
    config = text_of(root["config"])
    text = "version 1 step {} epoch {} world_size {} score {:016x} config {}:{}\n".format(
        root["step"], root["epoch"], root["world_size"], score, len(config.encode()), config)
    for path, array in sorted(arrays, key=lambda item: item[0].encode()):
        text += f"{len(path)}:{path} {text_of(array.attrs['dtype'])} [{','.join(map(str, array.shape))}] {text_of(array.attrs['xxh3'])}\n"
    root["xxh3"] = numpy.bytes_(f"{xxh3(text.encode(), len(text.encode())):016x}")
PYTHON
tool 0 show old.h5
grep -qE '^format_version +1$' out || fail "the version of an old file"
tool 0 show a
grep -qE '^format_version +2$' out || fail "the version of a file"

tool 0 export a --to safetensors --output model.safetensors
/usr/bin/python3 - "${files[-1]}" <<'PYTHON' || fail "the exported file"
import json, struct, sys, h5py, numpy
data = open("model.safetensors", "rb").read()
(length,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + length])
assert (8 + length) % 8 == 0, length
file = h5py.File(sys.argv[1])
assert header.pop("__metadata__") == {"step": str(file.attrs["step"]), "epoch": str(file.attrs["epoch"])}
assert set(header) == set(file["model"]) and len(header) == 4, header
end = 0
for name, entry in header.items():
    begin, stop = entry["data_offsets"]
    assert begin == end and entry["dtype"] == "F32", entry
    end = stop
    values = numpy.frombuffer(data[8 + length + begin:8 + length + stop], "<f4").reshape(entry["shape"])
    assert numpy.array_equal(values, file["model"][name][()]), name
assert 8 + length + end == len(data)
PYTHON
tool 0 export "${files[0]}"
[[ -s $(basename "${files[0]}" .h5).safetensors ]] || fail "the default name"
tool 64 export a --to onnx
tool 64 diff a
tool 64 list a b
tool 64 export nowhere
tool 1 export a --output nowhere/model.safetensors
printf 'x' | dd of="${files[-1]}" bs=1 seek=9000 conv=notrunc status=none
tool 65 export "${files[-1]}" --output damaged.safetensors
tool 65 diff "${files[-1]}" "${files[0]}"
[[ $(grep -c . err) == 1 && ! -e damaged.safetensors && -z $(find . -name '.*.tmp') ]] || fail "a damaged file"
