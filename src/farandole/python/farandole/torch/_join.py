"""hvd.join(): ranks whose batches end at different times.

Thread safety: none; use from one thread at a time.
"""
import gc
import queue
import threading
import time

import torch
from torch.distributed import distributed_c10d as c10d

from farandole.torch import _optimizer, _ranks
from farandole.torch._objects import broadcast_optimizer_state, broadcast_parameters
from farandole.torch._slots import GpuSlots, HostSlots, join_on_gpus


def join(device=-1):
    """This rank has no more batches. Until all ranks have called this, it takes part in the reductions and calls of the
    others with zeros. Returns the rank that came last. If a rank has missed steps, parameters and states of all
    distributed optimizers are then those of the last one. Collective: all ranks call it, with the same optimizers.
    """
    group = _ranks.group_of(_ranks.global_process_set)
    gc.collect()  # so that all ranks have the same optimizers
    optimizers = _optimizer.living()
    waits = [each.group.join for each in _ranks.process_sets() if each.group is not None]
    slots = [one for optimizer in optimizers if optimizer._exchange for one in optimizer._exchange.slots]
    waits += [one.join for one in slots if isinstance(one, HostSlots)]
    on_gpus = [one for one in slots if isinstance(one, GpuSlots)]
    if on_gpus:
        waits.append(lambda: join_on_gpus(on_gpus))
    came = torch.tensor([0, time.time()], dtype=torch.float64)
    came[0] = _sum_of_all(waits)
    everyone = came.new_empty(group.size(), 2)
    _ranks.named(_ranks.global_process_set, "joined", "_allgather_base", everyone, came,
                 c10d.AllgatherOptions()).wait()
    # The rank that took part in the fewest calls of others had batches longest.
    missed, times = everyone.unbind(1)
    last = int(torch.where(missed == missed.min(), times, 0).argmax())
    if missed.max() > 0:
        for optimizer in optimizers:
            if optimizer.process_set is _ranks.global_process_set:
                parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
                broadcast_parameters([("joined", parameter.detach()) for parameter in parameters], last)
                broadcast_optimizer_state(optimizer, last)
    return last


def _sum_of_all(waits):
    """Calls each function on a thread, because the other ranks may make their calls in any order."""
    results = queue.SimpleQueue()

    def run(wait):
        try:
            results.put(wait())
        except BaseException as error:
            results.put(error)

    for wait in waits:
        threading.Thread(target=run, args=(wait,), name="join", daemon=True).start()
    total = 0
    for _ in waits:
        result = results.get()
        if isinstance(result, BaseException):
            raise result
        total += result
    return total
