"""The rows of Parquet files as the batches of a rank.

The rows of an epoch are a sequence: the row groups in random order, one after the other. Each rank has an equal share of
it, to within one row, and reads it window by window; the rows of a window are shuffled. So every row is there once, the
ranks make equally many steps, and a rank keeps one window and one row group in memory. A single row that would be left
for the last batch of a rank joins the batch before, because batch normalization cannot train on one row.
"""

import os
import urllib.parse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

_WINDOW = 256 << 20  # bytes of a window, unless the user says how many rows
_UNEVEN = "column '{}' has lists of different lengths; make them equally long"


def dataset_of(path):
    """A Parquet file, or a folder of them, also as Spark's partitionBy() writes it: LABEL=0/part-0.parquet. Such a column is
    of whole numbers, of numbers or of texts."""
    files = pyarrow.dataset.dataset(path, format="parquet")
    if os.path.isfile(path):
        return files
    keys = {}
    for file in files.get_fragments():
        for folder in os.path.relpath(file.path, path).split(os.sep)[:-1]:
            name, equals, value = folder.partition("=")
            if equals and name not in files.schema.names and value != "__HIVE_DEFAULT_PARTITION__":
                keys.setdefault(urllib.parse.unquote(name), []).append(urllib.parse.unquote(value))
    if not keys:
        return files
    keys = pa.schema([(name, _type_of(values)) for name, values in keys.items()])
    return pyarrow.dataset.dataset(path, format="parquet", partitioning=pyarrow.dataset.partitioning(keys, flavor="hive"))


def _type_of(texts):
    for kind in pa.int64(), pa.float64():
        try:
            pa.array(texts).cast(kind)
            return kind
        except pa.ArrowInvalid:
            continue
    return pa.string()


class Table:
    """Parquet files and how their rows are divided into training and validation. It has no open file, so that it can be
    sent to the ranks."""

    def __init__(self, path, columns, validation, seed):
        """`columns` are to be read. `validation` is None, a fraction, or a column that is not 0 for validation rows."""
        self.path, self.columns, self.validation, self.seed = path, columns, validation, seed
        self.shapes = {}  # by column, of a row
        self.groups = self._open()
        self.rows = [group.row_groups[0].num_rows for group in self.groups]
        self.validating = [int(self._is_validation(number).sum()) for number in range(len(self.rows))]

    def __getstate__(self):
        return {**vars(self), "groups": None}

    def _open(self):
        """A fragment for each row group."""
        files = dataset_of(self.path)
        self.schema = files.schema
        return [group for file in sorted(files.get_fragments(), key=lambda file: file.path)
                for group in file.split_by_row_group() if group.row_groups[0].num_rows]

    def open(self):
        if self.groups is None:
            self.groups = self._open()

    def counts(self, validating):
        """The rows of each group."""
        return np.asarray(self.validating if validating else np.subtract(self.rows, self.validating), dtype=np.int64)

    def _is_validation(self, number):
        """Which rows of a group are only validated on."""
        rows = self.rows[number]
        if isinstance(self.validation, str):
            column = self.groups[number].to_table(columns=[self.validation], schema=self.schema)[self.validation]
            return flat(column, self.validation).reshape(rows) != 0
        chosen = np.zeros(rows, dtype=bool)
        if self.validation:
            before = sum(self.rows[:number])
            count = int((before + rows) * self.validation) - int(before * self.validation)
            chosen[np.random.default_rng([self.seed, number]).permutation(rows)[:count]] = True
        return chosen

    def read(self, number, validating):
        """The rows of a group: an array for each column."""
        table = self.groups[number].to_table(columns=self.columns, schema=self.schema)
        arrays = {name: flat(table[name], name) for name in self.columns}
        for name, array in arrays.items():
            if self.shapes.setdefault(name, array.shape[1:]) != array.shape[1:]:
                raise ValueError(_UNEVEN.format(name))
        if not self.validation:
            return arrays
        chosen = self._is_validation(number) == validating
        return {name: array[chosen] for name, array in arrays.items()}


def flat(column, name):
    """A column of numbers, or of lists of numbers that are alike in length, as an array with a row for each row."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    shape = [len(array)]
    while True:
        if array.null_count:
            raise ValueError(f"column '{name}' has rows without a value; fill or remove them")
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or
                pa.types.is_fixed_size_list(array.type)):
            break
        values = array.flatten()
        width = len(values) // len(array) if len(array) else 0
        if len(array) and pc.any(pc.not_equal(pc.list_value_length(array), width)).as_py():
            raise ValueError(_UNEVEN.format(name))
        shape.append(width)
        array = values
    if pa.types.is_decimal(array.type):
        array = pc.cast(array, pa.float64())
    if pa.types.is_struct(array.type):
        raise ValueError(f"column '{name}' has type {array.type}; convert vectors of Spark with "
                         "pyspark.ml.functions.vector_to_array before they are written")
    return array.to_numpy(zero_copy_only=False).reshape(shape)


def numbers(array, name):
    if len(array) and array.dtype.kind not in "biuf":
        raise ValueError(f"column '{name}' has values of type {array.dtype}, and the model needs numbers")
    return array.astype(np.float32, copy=False)


class Share:
    """The batches of one rank in one epoch: item i is its part of batch i, None if nothing is left for this rank."""

    def __init__(self, table, validating, rank, size, batch, *, seed=None, epoch=0, batches=None, window=None,
                 change=None, cache=None):
        """`seed` None: in the order of the table. `batches`: so many, in place of all rows once; the rows then come again
        in another order, or some not at all. `cache`: a dictionary for row groups that have been read."""
        table.open()
        self.table, self.validating, self.rank, self.size, self.batch = table, validating, rank, size, batch
        self.seed, self.epoch, self.change, self.cache = seed, epoch, change, {} if cache is None else cache
        self.keep = cache is not None
        self.counts = counts = table.counts(validating)
        self.rows = int(counts.sum()) if batches is None else batches * batch * size
        self.begin, self.end = (self.rows * one // size for one in (rank, rank + 1))
        most = max(self._share(one) for one in range(size))
        self.batches = -(-(most - (most > 1 and batch > 1)) // batch)
        passes = -(-self.rows // max(int(counts.sum()), 1))
        self.order = np.concatenate([np.arange(len(counts)) if seed is None else
                                     np.random.default_rng([seed, epoch, one]).permutation(len(counts))
                                     for one in range(passes)] or [np.arange(0)])
        self.ends = np.cumsum(counts[self.order])
        self.window = self.loaded = None
        self.window_rows = max(1, (window or _WINDOW // self._row_bytes()) // batch) * batch

    def __len__(self):
        return self.batches

    def _share(self, rank):
        return self.rows * (rank + 1) // self.size - self.rows * rank // self.size

    def _part(self, rows, number):
        """How many of its rows a rank has in a batch."""
        begin, end = number * self.batch, (number + 1) * self.batch
        if self.batch > 1 and rows in (begin + 1, end + 1) and rows > 1:
            return 0 if rows == begin + 1 else self.batch + 1
        return max(0, min(end, rows) - begin)

    def rows_of(self, number):
        """The rows of all ranks in a batch."""
        return sum(self._part(self._share(rank), number) for rank in range(self.size))

    def _row_bytes(self):
        for number in self.order[:1]:
            return max(1, sum(array[:1].nbytes for array in self._read(number).values()))
        return 1

    def _read(self, number):
        if number not in self.cache:
            if not self.keep:
                self.cache.clear()
            arrays = self.table.read(int(number), self.validating)
            self.cache[number] = arrays if self.change else {name: numbers(one, name) for name, one in arrays.items()}
        return self.cache[number]

    def _load(self, window):
        """Reads the rows of a window."""
        begin = self.begin + window * self.window_rows
        end = begin + self.window_rows
        end = min(end, self.end) if self.batch == 1 or end + 1 != self.end else self.end
        first, last = np.searchsorted(self.ends, [begin, end - 1], side="right")
        pieces = []
        for place in range(first, last + 1):
            arrays, number = self._read(self.order[place]), self.order[place]
            start = self.ends[place] - self.counts[number]
            pieces.append({name: array[max(begin - start, 0):end - start] for name, array in arrays.items()})
        joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in self.table.columns}
        if self.seed is not None:
            order = np.random.default_rng([self.seed, self.epoch, self.rank, window]).permutation(end - begin)
            joined = {name: array[order] for name, array in joined.items()}
        self.window, self.loaded = joined, window

    def __getitem__(self, number):
        count, begin = self._part(self.end - self.begin, number), number * self.batch
        if not count:
            return None
        if self.loaded != begin // self.window_rows:
            self._load(begin // self.window_rows)
        begin %= self.window_rows
        rows = {name: array[begin:begin + count] for name, array in self.window.items()}
        return _changed(rows, self.change) if self.change else rows


def _changed(rows, change):
    """What a function makes of the rows of a batch."""
    import pandas
    count = len(next(iter(rows.values())))
    changed = change(pandas.DataFrame({name: array if array.ndim == 1 else list(array) for name, array in rows.items()}))
    if len(changed) != count:
        raise ValueError(f"transformation_fn has made {len(changed)} rows of {count}; it must keep them all")
    arrays = {name: np.stack(changed[name]) if changed[name].dtype == object else changed[name].to_numpy()
              for name in changed.columns}
    return {name: numbers(array, name) for name, array in arrays.items()}


class _Order:
    """The numbers of all batches, for a DataLoader. `batch_size` is recorded."""

    def __init__(self, count, batch_size):
        self.count, self.batch_size = count, batch_size

    def __iter__(self):
        return ([number] for number in range(self.count))

    def __len__(self):
        return self.count


def loader(share):
    """A DataLoader over a share, so that reading is recorded as the phase data."""
    from torch.utils.data import DataLoader
    return DataLoader(share, batch_sampler=_Order(len(share), share.batch), collate_fn=_only)


def _only(items):
    return items[0]
