"""What torch.distributed asks of a process group, and how a group starts its calls.

Thread safety: none; use a group from one thread at a time, and create groups on the main thread.
"""
import ctypes
from datetime import timedelta

import torch
import torch.distributed as dist

from farandole import _exits, _work
from farandole._core import Error, check, core, quick
from farandole._tensors import byte_size
from farandole._work import DONE, Work, Works

# Older versions of torch do not say whether a call is asynchronous; a Work that is waited for at once costs little.
TELLS_ASYNC = hasattr(dist.AllreduceOptions(), "asyncOp")


class BaseGroup(dist.ProcessGroup):
    """A group without collectives."""

    supports_splitting = supports_coalescing = supports_time_estimate = False
    bound_device_id = None
    options = None
    label = None  # the name of the next calls, in place of their operation

    def __init__(self, options, gpu_options):
        super().__init__(options.group_rank, options.group_size)  # torch has no constructor with a store for a subclass
        ranks = list(options.global_ranks_in_group)
        self._store = options.store
        self._timeout = timedelta(seconds=options.timeout) if isinstance(options.timeout, float) else options.timeout
        self._gpu_options = gpu_options
        self._gpu = None
        self._observed = ctypes.c_void_p()
        self._name, self._description = options.group_id, ""
        self._works = None  # those of a coalescing block
        self._rank, self._size = options.group_rank, options.group_size
        self._ranks = (ctypes.c_int * len(ranks))(*ranks) if ranks else None
        _join(self._rank if not ranks else ranks[self._rank], self._size, not ranks)
        self._handle = ctypes.c_void_p()
        check(core.group(self._ranks, len(ranks), self._handle))
        if self._handle.value is None or quick.group_rank(self._handle) != self._rank:
            raise Error(f"rank {self._rank} of the torch.distributed group {self._name} has another rank in Farandole; "
                        "pass the same ranks on all ranks")

    # --- What torch asks a group -----------------------------------------------------------------------------------

    def getBackendName(self):
        return "farandole"

    name = _get_backend_name = getBackendName

    def getGroupName(self):
        return self._name

    def setGroupName(self, name):
        self._name = name

    def getGroupDesc(self):
        return self._description

    def setGroupDesc(self, description):
        self._description = description

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    getRank, getSize = rank, size

    def get_group_store(self):
        return self._store

    @property
    def _device_types(self):
        return [torch.device("cpu")] + ([torch.device("cuda")] if torch.cuda.is_available() else [])

    def _get_backend(self, device):
        return self._nccl() if torch.device(device).type == "cuda" and torch.cuda.is_available() else self

    def _set_sequence_number_for_group(self):
        pass

    def set_timeout(self, timeout):
        self._timeout = timeout

    def shutdown(self):
        if self._gpu is not None:
            self._gpu.shutdown()
            quick.observe_end(self._observed)
            self._gpu = None
        handle, self._handle = self._handle, None
        if handle is not None and quick.is_running():
            core.group_free(handle)

    def abort(self):
        if self._gpu is not None:
            self._gpu.abort()

    def _start_coalescing(self, device):
        if torch.device(device).type == "cuda":
            self._nccl()._start_coalescing(device)
        else:
            self._works = []

    def _end_coalescing(self, device):
        if torch.device(device).type == "cuda":
            return self._nccl()._end_coalescing(device)
        works, self._works = self._works, None
        return Works(works, [])

    # --- Calls -----------------------------------------------------------------------------------------------------

    def _run(self, opts, function, *arguments, result, keep=None, finish=None):
        """A call of `function`, which ends before this returns if `opts` says so. `finish` follows its success."""
        if not TELLS_ASYNC or opts.asyncOp:
            return self._start(function, *arguments, result=result, keep=keep, finish=finish)
        check(function(self._handle, *arguments, None))
        if finish:
            with torch.no_grad():
                finish()
        return DONE

    def _start(self, function, *arguments, result, keep=None, finish=None):
        ticket = ctypes.c_int64()
        check(function(self._handle, *arguments, ticket))
        _work.last_submitted = quick.now()
        work = Work(ticket.value, result, keep, finish)
        if self._works is not None:
            self._works.append(work)
        return work

    # --- CUDA ------------------------------------------------------------------------------------------------------

    def _nccl(self):
        """PyTorch's own group for CUDA tensors. Its collectives are recorded when a rank enters them."""
        if self._gpu is None:
            if not dist.is_nccl_available():
                raise Error("CUDA tensors need PyTorch's NCCL, which this PyTorch was built without; install another")
            options = self._gpu_options
            if not isinstance(options, dist.ProcessGroupNCCL.Options):
                options = dist.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            options.group_name = self._name
            options.global_ranks_in_group = list(self._ranks) if self._ranks else []
            store = dist.PrefixStore("cuda/", self._store)
            self._gpu = dist.ProcessGroupNCCL(store, self._rank, self._size, options)
            self._gpu._set_sequence_number_for_group()
            check(quick.observe(self._ranks, len(self._ranks or ()), self._observed))
        return self._gpu

    def _on_gpu(self, function, tensor, *arguments):
        gpu = self._nccl()
        name = function.strip("_").encode()
        call = quick.enter(self._observed, name, self.label or name, byte_size(tensor), 0)
        try:
            if not hasattr(gpu, function):  # The other name is that of PyTorch 2.15.
                function = function.replace("allgather_into_tensor", "all_gather_single").replace("_tensor", "_single")
            return getattr(gpu, function)(*arguments)
        finally:
            quick.leave(self._observed, call)


def _join(rank, size, is_world):
    """Starts Farandole's job if nobody has, and checks that it is the job of torch.distributed."""
    if not quick.is_running():
        if not is_world and size != dist.get_world_size():
            raise Error("the first group of the backend farandole must have all ranks; create one with new_group("
                        "backend='farandole') before groups of some ranks")
        check(core.init())
        _exits.install()
    world = size if is_world else dist.get_world_size() if dist.is_initialized() else quick.size()
    if quick.size() != world:
        raise Error(f"torch.distributed has {world} ranks and Farandole's job has {quick.size()}; start the script "
                    f"with farandole run -n {world}")
    if quick.rank() != rank:
        raise Error(f"rank {rank} of torch.distributed is rank {quick.rank()} of Farandole's job; leave RANK as "
                    "farandole run has set it")
