"""Tables of Spark, pandas, pyarrow, polars, Dask and Parquet files: written to the store for a training, and with columns
added after a prediction. The kinds are told by the module of their class, so that none of them is imported in vain."""
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from farandole.estimator import _predict
from farandole.estimator._rows import dataset_of, flat, numbers

_GROUP = 64 << 20  # bytes of a row group in memory, at most
_PART = 1 << 16  # rows of a part of a Parquet path in add_outputs()


def kind_of(table):
    if isinstance(table, (str, os.PathLike)):
        return "path"
    kind = type(table).__module__.partition(".")[0]
    if kind.startswith("dask"):  # dask_expr
        kind = "dask"
    if kind not in ("pyspark", "pandas", "pyarrow", "polars", "dask") or not hasattr(table, "columns"):
        raise TypeError(f"a {type(table).__name__} is no table: give a DataFrame of Spark, pandas, polars or Dask, a table "
                        "of pyarrow, or the path of Parquet files")
    return kind


def columns_of(table):
    kind = kind_of(table)
    if kind == "path":
        return _dataset(table).schema.names
    if kind == "polars" and hasattr(table, "collect_schema"):
        return table.collect_schema().names()
    return list(table.column_names if kind == "pyarrow" else table.columns)


def check_columns(table, wanted, parameter):
    """Throws: ValueError that names the columns that are missing."""
    have = columns_of(table)
    if missing := [name for name in wanted if name not in have]:
        raise ValueError(f"{parameter}: the table has no column {', '.join(map(repr, missing))}; it has "
                         f"{', '.join(map(repr, have))}")


def write(table, columns, folder, groups):
    """Writes columns of a table to Parquet files with about so many row groups. Returns their folder: that of the table
    itself if it is a path."""
    kind = kind_of(table)
    if kind == "path":
        return os.path.abspath(os.fspath(table))
    if kind == "pyspark":
        _dense(table.select(*columns), columns).repartition(groups).write.mode("overwrite").parquet("file://" + folder)
    elif kind == "dask":
        table[columns].repartition(npartitions=groups).to_parquet(folder, write_index=False)
    else:
        arrow = to_arrow(table, kind, columns)
        pyarrow.parquet.write_table(arrow, os.path.join(folder, "part-0.parquet"),
                                    row_group_size=max(1, -(-arrow.num_rows // max(groups, arrow.nbytes // _GROUP))))
    return folder


def to_arrow(table, kind, columns):
    if kind == "pandas":
        return pa.Table.from_pandas(table[columns], preserve_index=False)
    if kind == "polars":
        return getattr(table, "collect", lambda: table)().select(columns).to_arrow()
    return table.select(columns)


def _dataset(path):
    path = os.fspath(path)
    if not os.path.exists(path):
        raise ValueError(f"there are no Parquet files at {path}; name a file or a folder")
    return dataset_of(path)


def _dense(frame, columns):
    """With arrays in place of Spark's vectors."""
    from pyspark.ml.functions import vector_to_array
    for name in columns:
        if type(frame.schema[name].dataType).__name__ == "VectorUDT":
            frame = frame.withColumn(name, vector_to_array(name))
    return frame


class Outputs:
    """Adds the outputs of a model to a table. `whole`: for each output, whether its label has whole numbers."""

    def __init__(self, model, features, shapes, names, whole):
        self.model, self.features, self.shapes, self.names, self.whole = model, features, shapes, names, whole

    def add(self, table, folder):
        """Returns a table of the same kind. For a path, its files are in `folder`."""
        kind = kind_of(table)
        check_columns(table, self.features, "feature_cols")
        if kind == "path":
            return self._write(table, folder)
        if kind == "pyspark":
            return self._spark(table)
        if kind == "dask":
            meta = self._pandas(table.head(1, npartitions=-1)).iloc[:0]
            return table.map_partitions(self._pandas, meta=meta)
        if kind == "pandas":
            return self._pandas(table)
        outputs = self._arrow(to_arrow(table, kind, self.features))
        if kind == "polars":
            import polars
            return table.with_columns(*(polars.Series(name, array) for name, array in zip(self.names, outputs)))
        for name, array in zip(self.names, outputs):
            table = table.append_column(name, array)
        return table

    def _predict(self, table):
        arrays = [numbers(flat(table[name], name), name) for name in self.features]
        return _predict.predict(self.model, arrays, self.shapes, self.whole)

    def _arrow(self, table):
        return [pa.array(one) if one.ndim == 1 else
                pa.FixedSizeListArray.from_arrays(pa.array(one.reshape(-1)), one.shape[1]).cast(pa.list_(pa.float64()))
                for one in self._predict(table)]

    def _pandas(self, table):
        outputs = self._predict(pa.Table.from_pandas(table[self.features], preserve_index=False))
        return table.assign(**{name: one if one.ndim == 1 else list(one) for name, one in zip(self.names, outputs)})

    def _write(self, path, folder):
        source, schema, number = _dataset(path), None, 0
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for number, batch in enumerate(source.to_batches(batch_size=_PART)):
            part = pa.Table.from_batches([batch])
            for name, array in zip(self.names, self._arrow(part)):
                part = part.append_column(name, array)
            pyarrow.parquet.write_table(part, os.path.join(folder, f"part-{number:05}.parquet"))
        return folder

    def _spark(self, table):
        """One pandas udf makes all outputs, so that other columns may have any type."""
        from pyspark.ml.functions import array_to_vector, vector_to_array
        from pyspark.sql import functions as sql, types

        features = _dense(table.select(*self.features), self.features)
        columns = [vector_to_array(name) if type(table.schema[name].dataType).__name__ == "VectorUDT" else sql.col(name)
                   for name in self.features]
        first = features.limit(1).toArrow() if hasattr(features, "toArrow") else pa.Table.from_pandas(features.limit(1).toPandas())
        shapes = [one.ndim for one in self._predict(first)]
        result = types.StructType([
            types.StructField(name, types.ArrayType(types.DoubleType()) if dimensions > 1 else
                              types.LongType() if whole else types.DoubleType())
            for name, dimensions, whole in zip(self.names, shapes, self.whole)])
        made = sql.pandas_udf(_predict.for_spark(self.model, self.shapes, self.names, self.whole), result)(*columns)
        table = table.withColumn("farandole outputs", made)
        for name, dimensions in zip(self.names, shapes):
            column = sql.col("farandole outputs")[name]
            table = table.withColumn(name, array_to_vector(column) if dimensions > 1 else column)
        return table.drop("farandole outputs")
