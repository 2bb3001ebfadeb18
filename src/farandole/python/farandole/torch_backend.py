"""The backend "farandole" of torch.distributed. Importing this registers it and starts nothing.

CPU tensors use Farandole's collectives. CUDA tensors use PyTorch's NCCL group, made inside when the first one comes.
Call it from the main thread.
"""
import functools
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

if torch.__version__ < "2.4":
    raise ImportError("the backend farandole works with PyTorch 2.4 and later, and this is PyTorch "
                      f"{torch.__version__}; use gloo, or another PyTorch")

from farandole._collectives import Group  # noqa: E402

NAME = "farandole"


def install():
    """From now on, init_process_group() and new_group() use this backend, whichever one they are asked for."""
    original = distributed_c10d._new_process_group_helper
    if getattr(original, "backend", None) == NAME:
        return

    @functools.wraps(original)
    def helper(size, rank, ranks, backend, *arguments, **options):
        return original(size, rank, ranks, backend if backend == "fake" else dist.Backend(NAME), *arguments, **options)

    helper.backend = NAME
    distributed_c10d._new_process_group_helper = helper


_of_gloo = dist.monitored_barrier


@functools.wraps(_of_gloo)
def _monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    of = group or dist.group.WORLD
    if not isinstance(of, Group):
        return _of_gloo(group, timeout, wait_all_ranks)
    limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout or 1800)
    return of.monitored_barrier(limit, wait_all_ranks)


# PyTorch 2.15 attaches its flight recorder only to groups that it has made itself.
getattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add(NAME)
dist.Backend.register_backend(NAME, Group, extended_api=True, devices=["cpu", "cuda"])
dist.monitored_barrier = distributed_c10d.monitored_barrier = _monitored_barrier
