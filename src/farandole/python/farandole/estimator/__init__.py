"""TorchEstimator trains a torch model on a table, with the parameters of horovod.spark.torch. See docs/python.md.

Importing this loads neither torch nor pyspark; the names do so when they are used.
"""
import importlib

_HOMES = {
    "TorchEstimator": "_estimator",
    "TorchModel": "_estimator",
    "Callback": "callbacks",
    "EarlyStopping": "callbacks",
    "LearningRate": "callbacks",
    "DBFSLocalStore": "store",
    "FilesystemStore": "store",
    "HDFSStore": "store",
    "LocalStore": "store",
    "Store": "store",
}
__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
