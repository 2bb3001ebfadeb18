"""HorovodRunner, TorchDistributor, horovod.run(), horovod.spark.run() and SparkBackend: a function of the driver runs
on ranks, which need neither Horovod nor Spark.

Under `farandole python` and `farandole run --horovod` they have the names that scripts import (farandole._names). Any
thread may call them.
"""
import os
import runpy
import sys
import warnings

from farandole import _runner

__all__ = ["Backend", "HorovodRunner", "SparkBackend", "TorchDistributor", "log_to_driver", "run", "spark_run"]

_SLURM = "the hosts are those of the Slurm job; start the script in salloc or sbatch"
_ELASTIC = ("the number of ranks does not change during a run; start the script with farandole run --max-restarts, "
            "which continues from checkpoints")
# Parameters of Horovod that change nothing for the result here, and those that do, with what to do instead.
_HARMLESS = {"start_timeout", "ssh_port", "ssh_identity_file", "disable_cache", "verbose", "use_gloo", "use_mpi", "nics",
             "network_interface", "network_interfaces"}
_REMEDIES = {
    "hosts": _SLURM,
    "hostfile": _SLURM,
    "host_discovery_script": _ELASTIC,
    "min_num_proc": _ELASTIC,
    "max_num_proc": _ELASTIC,
    "min_np": _ELASTIC,
    "max_np": _ELASTIC,
    "slots": _ELASTIC,
    "reset_limit": _ELASTIC,
    "cooldown_range": _ELASTIC,
    "mpi_args": "set the OMPI_MCA_… variables of Open MPI in the environment",
    "extra_mpi_args": "set the OMPI_MCA_… variables of Open MPI in the environment",
    "output_filename": "the output of each rank is in the folder logs of the run directory",
    "executable": "the ranks use the Python of the driver; start the driver with that one",
}


def _look_at(function, options):
    """Warns of parameters that have no effect. Raises TypeError for one that does not exist."""
    for name, value in options.items():
        if name not in _HARMLESS and name not in _REMEDIES:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        if name in _REMEDIES and value is not None and not (name == "hosts" and _are_local(value)):
            warnings.warn(f"{function}({name}=…) has no effect in Farandole: {_REMEDIES[name]}", stacklevel=4)


def _are_local(hosts):
    return all(host.partition(":")[0] in ("localhost", "127.0.0.1") for host in str(hosts).split(","))


def run(func, args=(), kwargs=None, num_proc=1, *, np=None, **options):
    """horovod.run(): the values of all ranks. In a Slurm job, the ranks run on its nodes."""
    _look_at("horovod.run", options)
    return _runner.run(func, args, kwargs, num_proc if np is None else np)


def spark_run(fn, args=(), kwargs=None, num_proc=None, *, env=None, stdout=None, stderr=None,
              prefix_output_with_timestamp=False, **options):
    """horovod.spark.run(): the values of all ranks. Spark need not run; the ranks are no Spark tasks."""
    _look_at("horovod.spark.run", options)
    return SparkBackend(num_proc, env, stdout=stdout, stderr=stderr,
                        prefix_output_with_timestamp=prefix_output_with_timestamp).run(fn, args, kwargs)


class Backend:
    """What runs the training function of an estimator: override both methods."""

    def run(self, fn, args=(), kwargs=None, env=None):
        """Returns the values of fn(*args, **kwargs) on all ranks, in their order. `env`: variables of the ranks."""
        raise NotImplementedError("a Backend needs a method run()")

    def num_processes(self):
        raise NotImplementedError("a Backend needs a method num_processes()")


class SparkBackend(Backend):
    """Ranks of farandole run. The default of `num_proc` is Spark's parallelism, and without Spark the number of cores.
    stdout, stderr: a file, a path or anything with write()."""

    def __init__(self, num_proc=None, env=None, stdout=None, stderr=None, prefix_output_with_timestamp=False, **options):
        _look_at("SparkBackend", options)
        self._num_proc = num_proc or _parallelism()
        self._env = env
        self._output = {"stdout": stdout, "stderr": stderr, "timestamps": prefix_output_with_timestamp}

    def run(self, fn, args=(), kwargs=None, env=None, **options):
        """`options`: further ones of farandole._runner.run(), such as run_dir."""
        return _runner.run(fn, args, kwargs, self._num_proc, environment={**(self._env or {}), **(env or {})},
                           **self._output, **options)

    def num_processes(self):
        return self._num_proc


def _parallelism():
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    return context.defaultParallelism if context else len(os.sched_getaffinity(0))


class HorovodRunner:
    """np < 0: -np ranks on this machine; np > 0: np ranks, in a Slurm job on its nodes. The output of all ranks comes
    to the driver, so `driver_log_verbosity` changes nothing."""

    def __init__(self, np, driver_log_verbosity="log_callback_only"):
        if isinstance(np, bool) or not isinstance(np, int) or np == 0:
            raise ValueError(f"HorovodRunner(np={np!r}): give the number of ranks, or -1 for a trial on one process of "
                             "this machine")
        if driver_log_verbosity not in ("all", "log_callback_only"):
            raise ValueError(f"driver_log_verbosity is 'all' or 'log_callback_only', not {driver_log_verbosity!r}")
        self.num_processor = np

    def run(self, main, **kwargs):
        """The value of main(**kwargs) on rank 0."""
        local = self.num_processor < 0
        return _runner.run(main, (), kwargs, abs(self.num_processor), local=local, values="first")[0]


def log_to_driver(message):
    """sparkdl.horovod.log_to_driver(): a line in the output of the driver."""
    print(message, flush=True)


class TorchDistributor:
    """Ranks with the environment that torchrun gives: the function calls init_process_group() and uses DDP.

    num_workers: another name of num_processes. local_mode=False: in a Slurm job on its nodes. use_gpu=False hides the
    GPUs from the ranks.
    """

    def __init__(self, num_processes=None, local_mode=True, use_gpu=True, _ssl_conf=None, *, num_workers=None):
        if num_processes is not None and num_workers is not None:
            raise ValueError("num_workers is another name of num_processes; give one of them")
        ranks = num_processes if num_workers is None else num_workers
        self.num_processes = 1 if ranks is None else ranks
        if isinstance(self.num_processes, bool) or not isinstance(self.num_processes, int) or self.num_processes < 1:
            raise ValueError(f"num_processes has to be a positive integer, not {ranks!r}")
        self.local_mode, self.use_gpu = local_mode, use_gpu

    def run(self, train_object, *args, **kwargs):
        """A function: the value of train_object(*args, **kwargs) on rank 0. The path of a script: each rank runs it with
        these arguments of its command line, and the result is None."""
        if isinstance(train_object, (str, os.PathLike)):
            if kwargs:
                raise ValueError("a script has no keyword arguments; give strings, such as '--epochs=3'")
            path = os.path.abspath(train_object)
            if not os.path.isfile(path):
                raise FileNotFoundError(f"there is no script {path}")
            train_object, args = _run_script, (path, [str(argument) for argument in args])
        environment = {} if self.use_gpu else {"CUDA_VISIBLE_DEVICES": ""}
        return _runner.run(train_object, args, kwargs, self.num_processes, environment=environment,
                           local=self.local_mode, values="first")[0]


def _run_script(path, arguments):
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")
