"""Batches of arrays through a model. Spark's workers get this module by value, so it imports nothing of Farandole."""
import sys

import numpy as np
import torch

_ROWS = 256  # in a batch of predict()


def inputs_of(arrays, shapes, device="cpu"):
    """The inputs of a model. Without shapes, a column of single numbers becomes one of vectors with one number."""
    tensors = [torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(device) for array in arrays]
    if shapes:
        return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes)]
    return [tensor.unsqueeze(1) if tensor.ndim == 1 else tensor for tensor in tensors]


def predict(model, arrays, shapes, whole):
    """The outputs of the model for all rows, one array for each output: a number for each row, a whole one where `whole`
    says that the labels are, or a vector of float64."""
    model.eval()
    parts = []
    with torch.no_grad():
        for begin in range(0, len(arrays[0]), _ROWS):
            rows = len(arrays[0][begin:begin + _ROWS])
            outputs = model(*inputs_of([array[begin:begin + _ROWS] for array in arrays], shapes))
            outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
            if len(outputs) < len(whole):
                raise ValueError(f"the model has {len(outputs)} outputs for {len(whole)} labels")
            parts.append([output.reshape(rows, -1).double().numpy() for output in outputs[:len(whole)]])
    if not parts:
        return [np.empty((0,), np.int64 if one else np.float64) for one in whole]
    results = [np.concatenate(one) for one in zip(*parts)]
    for number, result in enumerate(results):
        if result.shape[1] == 1:
            results[number] = np.rint(result[:, 0]).astype(np.int64) if whole[number] else result[:, 0]
    return results


def for_spark(model, shapes, names, whole):
    """A function of columns for pandas_udf. Its workers need torch, but not Farandole."""
    import pandas
    from pyspark import cloudpickle
    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def outputs(*columns: pandas.Series) -> pandas.DataFrame:
        arrays = [_stacked(column) for column in columns]
        return pandas.DataFrame({name: array if array.ndim == 1 else list(array)
                                 for name, array in zip(names, predict(model, arrays, shapes, whole))})

    return outputs


def _stacked(column):
    if column.dtype != object:
        return column.to_numpy()
    return np.stack([np.stack(row) if row.dtype == object else row for row in column])
