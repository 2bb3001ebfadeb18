#!/usr/bin/env bash
# farandole table on files that Python wrote, with the types and layouts that users have; and on a file larger than memory.
source "$(dirname "$0")/../trainer/common.sh"
need_h5py

/usr/bin/python3 - <<'PYTHON' || fail "the files cannot be made"
import h5py, numpy
rows = 1001
with h5py.File("data.h5", "w") as file:
    file["pixels"] = numpy.arange(rows * 6, dtype="u1").reshape(rows, 2, 3)
    file.create_dataset("packed", data=numpy.arange(rows * 2, dtype=">f8").reshape(rows, 2), chunks=(100, 2), compression="gzip")
    file["digit"] = numpy.arange(rows, dtype="i2")
    file["name"] = [f"row {i}" for i in range(rows)]
    file["group/weight"] = numpy.linspace(0, 1, rows, dtype="f4")
PYTHON
"$bin/farandole" table show data.h5 >out 2>err || fail "show"
for line in "data.h5: $((1001)) rows" 'digit +int64 +\[\]' 'group/weight +float32 +\[\]' 'packed +float64 +\[2\]  chunks of 100 rows' \
  'pixels +uint8 +\[2, 3\]' 'name +not a column of numbers'; do
  grep -qE "^$line$" out || fail "show lacks '$line'"
done
"$bin/farandole" table split data.h5 --fractions 0.7,0.2,0.1 --seed 3 -o a.h5 -o b.h5 -o c.h5 >out 2>err || fail "split"
grep -q 'column name of data.h5 does not hold numbers and is left out' err || fail "split does not say that it leaves out the text"
/usr/bin/python3 - <<'PYTHON' || fail "the parts are not the table"
import h5py, numpy
whole = h5py.File("data.h5")
parts = [h5py.File(f"{name}.h5") for name in "abc"]
assert [len(part["digit"]) for part in parts] == [701, 200, 100], [len(part["digit"]) for part in parts]
order = numpy.concatenate([part["digit"][()] for part in parts])
assert sorted(order) == list(range(1001))
for name in ("pixels", "packed", "group/weight"):
    assert numpy.array_equal(numpy.concatenate([part[name][()] for part in parts]), whole[name][()][order]), name
PYTHON

refused() {  # CODE PATTERN ARGUMENT...
  local code=$1 pattern=$2 got=0
  shift 2
  "$bin/farandole" table "$@" >out 2>err || got=$?
  [[ $got == "$code" && $(wc -l <err) == 1 ]] || fail "exit code $got, not $code with one line: table $*"
  grep -qE -- "$pattern" err || fail "no '$pattern': table $*"
}
refused 64 'did you mean show' shwo data.h5
# Numbers above 2^63 - 1 must not become other numbers.
/usr/bin/python3 -c 'import h5py, numpy
for name, large in ("large.h5", 2**63 + 5), ("fits.h5", 2**63 - 1): h5py.File(name, "w")["id"] = numpy.array([1, large], "u8")'
refused 65 'data set /id .*has a value that int64 cannot hold' split large.h5 --fractions 1 -o d.h5
"$bin/farandole" table split fits.h5 --fractions 1 -o d.h5 >out 2>err && /usr/bin/python3 -c 'import h5py; assert list(h5py.File("d.h5")["id"]) == [1, 2**63 - 1]' ||
  fail "large numbers that fit: $(<err)"
refused 64 'show and split'
refused 64 'needs a table' show
refused 64 'no table nothing.h5' show nothing.h5
refused 64 'add up to 0.8' split data.h5 --fractions 0.7,0.1 -o a.h5 -o b.h5
refused 64 "'x' is not a number" split data.h5 --fractions 0.7,x -o a.h5 -o b.h5
refused 64 '2 fractions and 1 outputs' split data.h5 -o a.h5
refused 64 'output b.txt: the suffix decides on the format; use .h5, .csv or' split data.h5 -o a.csv -o b.txt
[[ ! -e a.csv ]] || fail "a part was written beside one that was refused"
# Texts stay in CSV files.
printf 'x,name\n1,one\n2,"two, three"\n' >texts.csv
"$bin/farandole" table split texts.csv --fractions 0.5,0.5 -o a.csv -o b.csv >out 2>err && [[ ! -s err ]] || fail "split into CSV files"
[[ $(cat a.csv b.csv | LC_ALL=C sort | uniq -c | tr -s ' \n' ' ') == ' 1 "two, three",2 2 name,x 1 one,1 ' ]] || fail "the parts: $(cat a.csv b.csv)"
printf 'a,b\n1,2\n1\n' >ragged.csv
refused 65 'ragged.csv: line 3 has 1 column,' show ragged.csv
head -c 3000 data.h5 >half.h5
refused 65 'half.h5' show half.h5

# A file of 3 GiB, most of it a hole that takes no space on the disk, in 1 GiB of address space.
/usr/bin/python3 - <<'PYTHON' || fail "the large file cannot be made"
import h5py
with h5py.File("large.h5", "w") as file:
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((3 << 10, 1 << 20))
    h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, space, create)
PYTHON
[[ $(stat -c %s large.h5) -ge $((3 << 30)) ]] || fail "the large file is not large"
for order in shuffled ordered; do
  (ulimit -v $((1 << 20)); "$bin/read_table" large.h5 x 2 $order) >out 2>err || fail "the large file, $order"
  grep -q "^3072 rows, sum $((3071 * 3072 / 2))," out || fail "the large file, $order: other rows"
done
