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

# What is in other files never gets into a copy, and what cannot be read is named. Names cannot control a terminal.
printf 'secret: hunter2 hunter2 hunter2\n' >secret.txt
/usr/bin/python3 - <<'PYTHON' || fail "strange files cannot be made"
import h5py, numpy
with h5py.File("gift.h5", "w") as file:
    file.create_dataset("pixels", (32, 1), "u1", external=[("secret.txt", 0, 32)])
    file["row"] = numpy.arange(32)
with h5py.File("links.h5", "w", libver="latest", userblock_size=1024) as file:
    file["x"], file["mean"] = numpy.arange(20.0), [1.0]
    file["outside"], file["gone"] = h5py.ExternalLink("data.h5", "/digit"), h5py.SoftLink("/nowhere")
    file["\33]0;title\7"] = ["a"] * 20
with h5py.File("loops.h5", "w") as file:
    groups = [file.create_group(f"g{i}") for i in range(40)]
    for one, next in zip(groups, groups[1:]):
        one["a"] = one["b"] = next
PYTHON
refused 64 'column pixels of gift.h5 cannot be written again: its values are in another file, secret.txt' split gift.h5 -o a.h5 -o b.h5
"$bin/farandole" table show gift.h5 >out 2>err && grep -q '^row  int64 ' out && grep -q '^pixels  cannot be used: .*secret.txt' out || fail "show of external storage"
"$bin/farandole" table show links.h5 >out 2>err || fail "show of links"
for line in 'links.h5: 20 rows' 'x +float64 +\[\]' 'mean +cannot be used: it has 1 row, and the table has 20' 'outside +cannot be used: it is a link to another file, data.h5;.*' \
  'gone +cannot be used: it is a link to /nowhere, .*' '\?\]0;title\? +not a column of numbers'; do
  grep -qE "^$line$" out || fail "show lacks '$line'"
done
"$bin/farandole" table split links.h5 -o a.h5 -o b.h5 >out 2>err && [[ $(grep -c 'is left out' err) == 4 ]] || fail "split of links: $(<err)"
! grep -q $'[\33\7]' err || fail "a warning controls the terminal"
refused 65 'loops.h5 has no column with numbers that can be used, or is damaged: g0/a: it is the group /g1 again' show loops.h5
printf '5.1,3.5,0\n4.9,3.0,0\n' >no_header.csv
"$bin/farandole" table show no_header.csv >out 2>err && grep -q "^farandole: no_header.csv: the first line should name the columns, and '5.1' in it" err ||
  fail "a missing header: $(<err)"
printf 'area;price\n20,5;1,5\n' >european.csv
refused 64 'european.csv: semicolons separate its columns, and its numbers have decimal commas; ' show european.csv

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
