"""Lets scripts import Horovod, sparkdl and TorchDistributor by the names that they use, and get Farandole's. Python calls
this at its start if FARANDOLE_HOROVOD is 1, as `farandole python` and `farandole run --horovod` set it.

It imports nothing before a script imports one of the names.
"""
import importlib
import importlib.machinery
import os
import sys
import types

from farandole import _start

_RUNNERS, _TORCH, _ESTIMATOR = "farandole.runners", "farandole.torch", "farandole.estimator"
# By name: the module that has what it offers, and what of it (None: all of it).
_MODULES = {
    "horovod": (_RUNNERS, {"run": "run"}),
    "horovod.runner": (_RUNNERS, {"run": "run"}),
    "horovod.torch": (_TORCH, None),
    "horovod.torch.compression": (_TORCH, None),
    "horovod.torch.functions": (_TORCH, None),
    "horovod.torch.mpi_ops": (_TORCH, None),
    "horovod.torch.optimizer": (_TORCH, None),
    "horovod.torch.sync_batch_norm": (_TORCH, None),
    "horovod.spark": (_RUNNERS, {"run": "spark_run"}),
    "horovod.spark.runner": (_RUNNERS, {"run": "spark_run"}),
    "horovod.spark.common": (None, {}),
    "horovod.spark.common.backend": (_RUNNERS, {"Backend": "Backend", "SparkBackend": "SparkBackend"}),
    "horovod.spark.common.store": (_ESTIMATOR, None),
    "horovod.spark.torch": (_ESTIMATOR, None),
    "horovod.spark.torch.estimator": (_ESTIMATOR, None),
    "sparkdl": (_RUNNERS, {"HorovodRunner": "HorovodRunner"}),
    "sparkdl.horovod": (_RUNNERS, {"HorovodRunner": "HorovodRunner", "log_to_driver": "log_to_driver"}),
}
_DISTRIBUTOR = "pyspark.ml.torch.distributor"
_WITHOUT_PYSPARK = {
    "pyspark": (None, {}),
    "pyspark.ml": (None, {}),
    "pyspark.ml.torch": (None, {}),
    _DISTRIBUTOR: (_RUNNERS, {"TorchDistributor": "TorchDistributor"}),
}
_OTHER_FRAMEWORK = "Farandole trains with PyTorch: use horovod.torch, or start the script with Horovod itself (python3)"
_ELASTIC = ("the number of ranks does not change during a run; leave out the elastic state, save checkpoints, and "
            "start the script with farandole run --max-restarts")
_REFUSED = {
    "horovod.tensorflow": _OTHER_FRAMEWORK,
    "horovod.keras": _OTHER_FRAMEWORK,
    "horovod.mxnet": _OTHER_FRAMEWORK,
    "horovod.spark.keras": _OTHER_FRAMEWORK,
    "horovod.spark.tensorflow": _OTHER_FRAMEWORK,
    "horovod.spark.lightning": "use TorchEstimator of horovod.spark.torch, or Lightning's DDP with farandole run",
    "horovod.elastic": _ELASTIC,
    "horovod.torch.elastic": _ELASTIC,
    "horovod.ray": "Farandole starts the ranks itself: use horovod.run(), and salloc or sbatch for several hosts",
    "sparkdl.horovod.tensorflow": _OTHER_FRAMEWORK,
}


class _Loader:
    def __init__(self, source, names):
        self.source, self.names = source, names

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if self.names is None:
            self._copy_all(module)
            return
        source = importlib.import_module(self.source) if self.names else None
        for name, of_source in self.names.items():
            setattr(module, name, getattr(source, of_source))
        if module.__name__ == "horovod":
            module.__version__ = "0.28.1"  # whose interface this is; scripts compare it

    def _copy_all(self, module):
        """Also __getattr__, which refuses what does not exist."""
        own = {"__name__", "__loader__", "__package__", "__spec__", "__path__", "__file__", "__cached__", "__builtins__"}
        for name, value in vars(importlib.import_module(self.source)).items():
            if name not in own and not isinstance(value, types.ModuleType):
                setattr(module, name, value)


class _Finder:
    """Of `modules`, and of the names that are refused."""

    def __init__(self, modules):
        self.modules = modules

    def find_spec(self, name, path=None, target=None):
        for refused, remedy in _REFUSED.items():
            if name == refused or name.startswith(refused + "."):
                raise ImportError(f"{refused} is not part of Farandole: {remedy}", name=name)
        if name not in self.modules:
            return None
        if name in ("horovod", "sparkdl"):
            _say_which(name)
        return importlib.machinery.ModuleSpec(name, _Loader(*self.modules[name]), is_package=True)


def _say_which(name):
    """A line if the package of this name is installed too."""
    other = importlib.machinery.PathFinder.find_spec(name)
    if other is None or other.origin is None or os.environ.get("RANK", "0") != "0":
        return
    print(f"farandole: {name} is Farandole's here, not the one in {os.path.dirname(other.origin)}; to use that one, "
          "start the script with python3, or with farandole run without --horovod", file=sys.stderr, flush=True)


def _replace_distributor():
    from farandole import runners
    sys.modules[_DISTRIBUTOR].TorchDistributor = runners.TorchDistributor


def install():
    sys.meta_path.insert(0, _Finder(_MODULES))
    _start.after(_DISTRIBUTOR, _replace_distributor)
    sys.meta_path.append(_Finder(_WITHOUT_PYSPARK))
