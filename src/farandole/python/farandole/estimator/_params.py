"""The parameters of TorchEstimator and TorchModel, with the names and defaults of Horovod's."""
import numbers
import warnings

from farandole.estimator._ml import HasOutputCols, Param, Params


def _whole(value):
    if isinstance(value, bool) or not isinstance(value, numbers.Number) or value != int(value):
        raise TypeError(f"{value!r} is no whole number")
    return int(value)


def _flag(value):
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither True nor False")
    return value


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(value):
    if isinstance(value, str) or not all(isinstance(one, str) for one in value):
        raise TypeError(f"{value!r} is no list of names")
    return list(value)


# Name, default, conversion, meaning. An empty meaning: accepted, and without effect here.
ESTIMATOR = [
    ("num_proc", None, _whole, "number of ranks; without it, Spark's default parallelism, or the number of cores"),
    ("backend", None, None, "starts the ranks, as SparkBackend(num_proc=3); not together with num_proc"),
    ("store", None, None, "Store with the tables and runs"),
    ("model", None, None, "torch.nn.Module to train; it stays as it is"),
    ("optimizer", None, None, "torch optimizer of the model; its rates are multiplied by the number of ranks"),
    ("loss", None, None, "function of output and label, or a list with one for each label"),
    ("loss_constructors", None, None, "functions that make the losses on each rank, in place of loss"),
    ("loss_weights", None, list, "weight of each label's loss; all alike without it"),
    ("sample_weight_col", None, _text, "column with the weight of each row; the losses need a parameter reduction"),
    ("metrics", [], list, "list of lists of functions of output and label: one for all labels, or one for each"),
    ("feature_cols", None, _texts, "columns that are the inputs of the model"),
    ("label_cols", None, _texts, "columns with a label for each output of the model"),
    ("input_shapes", None, list, "shape of each input for a batch, as [-1, 1, 28, 28]"),
    ("label_shapes", None, list, "shape of each label for a batch"),
    ("validation", None, None, "fraction of the rows, or column that is not 0 for the rows, that are only validated on"),
    ("gradient_compression", None, None, "Compression of farandole.torch for the gradients"),
    ("batch_size", 32, _whole, "rows of a rank in a batch"),
    ("val_batch_size", None, _whole, "the same in validation"),
    ("epochs", 1, _whole, "passes over the rows"),
    ("verbose", 1, _whole, "0: no output; 1: a line for each epoch; 2: also within an epoch"),
    ("callbacks", [], list, "objects of farandole.estimator.Callback"),
    ("random_seed", None, _whole, "seed of everything random; without it, a new one for each run"),
    ("shuffle", True, _flag, "whether the order of the rows is random in each epoch"),
    ("shuffle_buffer_size", None, _whole, "rows among which a rank shuffles; 0: none"),
    ("partitions_per_process", 10, _whole, "row groups of a table for each rank"),
    ("run_id", None, _text, "name of the run in the store; if the run is there, it continues"),
    ("train_minibatch_fn", None, None, "function that trains on one batch, in place of forward, backward and step"),
    ("train_steps_per_epoch", None, _whole, "batches of a rank in an epoch, in place of one pass over the rows"),
    ("validation_steps_per_epoch", None, _whole, "batches of a rank in a validation, at most"),
    ("transformation_fn", None, None, "function that changes the rows of a batch, a pandas.DataFrame, and returns them"),
    ("inmemory_cache_all", False, _flag, "whether a rank keeps all rows that it has read in memory"),
    ("use_gpu", True, _flag, "whether each rank uses a GPU if there is one for each"),
    ("backward_passes_per_step", 1, _whole, "batches of a rank before a step of the optimizer"),
    ("data_module", None, None, ""),
    ("continuous_cols", None, None, ""),
    ("categorical_cols", None, None, ""),
    ("compress_sparse_cols", False, None, ""),
    ("train_reader_num_workers", 2, None, ""),
    ("val_reader_num_workers", 2, None, ""),
    ("reader_pool_type", "thread", None, ""),
    ("mp_start_method", None, None, ""),
    ("tensorflow_dataset_prefetch_buffer_size", 0, None, ""),
    ("transformation_edit_fields", None, None, ""),
    ("transformation_removed_fields", None, None, ""),
]
MODEL = [
    ("history", None, None, "losses and metrics of each epoch"),
    ("model", None, None, "the trained torch.nn.Module"),
    ("optimizer", None, None, "its optimizer after the training"),
    ("feature_columns", None, None, "columns that are the inputs of the model"),
    ("label_columns", None, None, "columns with a label for each output"),
    ("input_shapes", None, None, "shape of each input for a batch"),
    ("run_id", None, None, "name of the run in the store"),
    ("loss", None, None, "losses of the training"),
    ("loss_constructors", None, None, "what has made them"),
    ("_metadata", None, None, "type of each label"),
    ("_run_path", None, None, "folder of the run, for transform() of a Parquet path"),
]
_METHODS = {
    "shuffle_buffer_size": "ShufflingBufferSize",
    "train_reader_num_workers": "TrainReaderNumWorker",
    "val_reader_num_workers": "ValReaderNumWorker",
    "inmemory_cache_all": "InMemoryCacheAll",
}
_ignored = {name for name, _, _, meaning in ESTIMATOR if not meaning}


def _with(table):
    """A class decorator: a Param, a getter and a setter for each parameter of the table."""
    def decorate(owner):
        owner._table = {name: default for name, default, _, _ in table}
        for name, _, convert, meaning in table:
            method = _METHODS.get(name) or name.title().replace("_", "")
            setattr(owner, name, Param(Params._dummy(), name, meaning or "accepted, without effect here", convert))
            if not name.startswith("_"):
                setattr(owner, "get" + method, lambda self, name=name: self.getOrDefault(name))
                setattr(owner, "set" + method, lambda self, value, name=name: self.setParams(**{name: value}))
        return owner
    return decorate


class _Table(Params):
    def __init__(self):
        super().__init__()
        self._setDefault(**self._table)

    def setParams(self, **values):
        for name, value in values.items():
            if name not in self._table:
                raise TypeError(f"{type(self).__name__} has no parameter '{name}'; it has {', '.join(self._table)}")
            if name in _ignored and value != self._table[name]:
                _ignored.discard(name)
                warnings.warn(f"{name} has no effect here: the ranks read Parquet files by pyarrow", stacklevel=3)
        # As in Horovod's constructor, None stands for the default.
        return self._set(**{name: self._table[name] if value is None else value for name, value in values.items()})


@_with(ESTIMATOR)
class EstimatorParams(_Table):
    pass


@_with(MODEL)
class ModelParams(_Table, HasOutputCols):
    def setOutputCols(self, value):
        return self._set(outputCols=list(value))


ModelParams.setLabelColoumns = ModelParams.setLabelColumns  # Horovod's spelling
