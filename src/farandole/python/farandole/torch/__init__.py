"""What scripts for horovod.torch call: `import farandole.torch as hvd`. See docs/python.md.

Importing this starts nothing.
"""
from farandole._core import Error as HorovodInternalError
from farandole.torch._calls import (allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                                    allreduce_async_, alltoall, alltoall_async, barrier, broadcast, broadcast_,
                                    broadcast_async, broadcast_async_, grouped_allgather, grouped_allgather_async,
                                    grouped_allreduce, grouped_allreduce_, grouped_allreduce_async,
                                    grouped_allreduce_async_, grouped_reducescatter, grouped_reducescatter_async,
                                    poll, reducescatter, reducescatter_async, sparse_allreduce_async,
                                    synchronize)
from farandole.torch._join import join
from farandole.torch._objects import (allgather_object, broadcast_object, broadcast_optimizer_state,
                                      broadcast_parameters)
from farandole.torch._optimizer import DistributedOptimizer
from farandole.torch._ranks import (Adasum, Average, Max, Min, ProcessSet, Product, Sum, add_process_set, ccl_built,
                                    cross_rank, cross_size, cuda_built, ddl_built, global_process_set, gloo_built,
                                    gloo_enabled, init, is_homogeneous, is_initialized, local_rank, local_size,
                                    mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank,
                                    remove_process_set, rocm_built, shutdown, size)
from farandole.torch._sync_batch_norm import SyncBatchNorm
from farandole.torch.compression import Compression


def start_timeline(file_path, mark_cycles=False):
    raise NotImplementedError("hvd.start_timeline() is not built; start the script with farandole run --run-dir RUN "
                              "--trace-torch, which records all of it")


stop_timeline = start_timeline


def __getattr__(name):
    if name == "elastic":
        from importlib import import_module
        return import_module("farandole.torch.elastic")  # which says what to do
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
