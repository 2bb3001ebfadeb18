"""The start and end of hvd, its ranks and its process sets.

Thread safety: init(), shutdown() and the process sets belong to the main thread. Any thread may call the rest.
"""
import os
import sys
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist

from farandole import _exits
from farandole._collectives import Group
from farandole._core import check, core, count, quick

Average, Sum, Adasum, Min, Max, Product = range(6)

_sets = {}  # by process_set_id, while hvd is initialized
_hosts = []  # of all ranks


class RankGroup(Group):
    """Ranks of the job as a group that needs no torch.distributed; without `ranks`, all of them."""

    def __init__(self, name, ranks=None):
        rank, size = (ranks.index(quick.rank()), len(ranks)) if ranks else (quick.rank(), quick.size())
        super().__init__(SimpleNamespace(group_rank=rank, group_size=size, global_ranks_in_group=ranks or [],
                                         store=None, timeout=timedelta(minutes=30), group_id=name), None)
        check(core.group_may_join(self._handle))

    def join(self):
        """For hvd.join(): takes part in the calls of the other ranks, and returns their number."""
        return count(core.join, self._handle)

    def _run(self, opts, function, name, *arguments, **rest):
        return super()._run(opts, function, self.label or name, *arguments, **rest)

    def _start(self, function, name, *arguments, **rest):
        return super()._start(function, self.label or name, *arguments, **rest)

    def _nccl(self):
        if self._store is None:
            self._store = self._meet()
        return super()._nccl()

    def _meet(self):
        """A store of these ranks on the first one."""
        ranks = list(self._ranks or range(self._size))
        hosts = {_hosts[rank] for rank in ranks}
        host = "127.0.0.1" if len(hosts) == 1 else _hosts[ranks[0]]
        store = dist.TCPStore(host, 0, None, True, wait_for_workers=False) if self._rank == 0 else None
        port = torch.tensor([store.port if store else 0])
        self.broadcast([port]).wait()
        return store or dist.TCPStore(host, int(port), None, False)


class ProcessSet:
    """Ranks with collectives of their own. Pass it to hvd.init() or hvd.add_process_set()."""

    def __init__(self, ranks):
        try:
            self.ranks = sorted(ranks)
        except TypeError:
            raise ValueError("hvd.ProcessSet takes a list of ranks; those of an MPI communicator are "
                             "comm.allgather(MPI.COMM_WORLD.Get_rank())") from None
        if any(not isinstance(rank, int) for rank in self.ranks):
            raise ValueError(f"hvd.ProcessSet takes a list of ranks, which are integers; here is {self.ranks}")
        self.process_set_id = None
        self.group = None  # None on ranks outside of the set, too

    def size(self):
        """None before init()."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self):
        """Of this process within the set; None before init(). Roots of broadcasts are ranks of the job."""
        return None if self.process_set_id is None else group_of(self).rank()

    def included(self):
        return rank() in self.ranks

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def init(comm=None, process_sets=None):
    """Starts the rank. A second call does nothing. Collective: all ranks call it, with the same process sets."""
    if _sets:
        return
    if os.environ.get("HOROVOD_AUTOTUNE", "0") not in ("", "0"):
        raise ValueError("HOROVOD_AUTOTUNE is set, and Farandole does not tune itself; unset it")
    check(core.init())
    _exits.install()
    _check_ranks(comm)
    if os.environ.get("HOROVOD_TIMELINE") and quick.rank() == 0:
        print("farandole: HOROVOD_TIMELINE is not written; farandole run --run-dir RUN --trace-torch records all ranks in "
              "RUN/timeline.json.gz", file=sys.stderr, flush=True)
    if os.environ.get("FARANDOLE_RUN_DIR"):
        from farandole import record
        if record._phases is not None:
            record._phases.here()  # so that the first batch is recorded
    _hosts[:] = [quick.host(other).decode() for other in range(quick.size())]
    global_process_set.ranks = list(range(quick.size()))
    global_process_set.group = RankGroup("hvd")
    _sets[0] = global_process_set
    for process_set in [] if process_sets in (None, "dynamic") else process_sets:
        add_process_set(process_set)


def _check_ranks(comm):
    started = int(os.environ.get("WORLD_SIZE") or quick.size())
    if started != quick.size():
        raise ValueError(f"WORLD_SIZE is {started} and Farandole's job has {quick.size()} ranks; start the script with "
                         f"farandole run -n {started}")
    wanted = comm.Get_size() if hasattr(comm, "Get_size") else len(comm or ())
    if wanted not in (0, quick.size()):
        raise ValueError(f"hvd.init(comm) has {wanted} of {quick.size()} ranks; call hvd.init() without comm, and pass "
                         "these ranks as process_sets=[hvd.ProcessSet(ranks)]")


def shutdown():
    """Ends hvd, which init() may start again. Collective: all ranks call it."""
    for process_set in _sets.values():
        if process_set.group is not None:
            process_set.group.shutdown()
        process_set.group = None
        if process_set is not global_process_set:
            process_set.process_set_id = None
    _sets.clear()


def is_initialized():
    return bool(_sets)


def check_initialized():
    if not _sets:
        raise ValueError("hvd has not been initialized, or hvd.shutdown() has ended it; call hvd.init() first")


# --- Process sets --------------------------------------------------------------------------------------------------


def add_process_set(process_set):
    """Makes a process set usable, and returns it. Collective: all ranks call it, also those outside of the set."""
    check_initialized()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    ranks = process_set.ranks
    if not ranks or len(set(ranks)) < len(ranks) or ranks[0] < 0 or ranks[-1] >= quick.size():
        raise ValueError(f"the process set {ranks} must have ranks from 0 to {quick.size() - 1}, each once")
    if any(other.ranks == ranks for other in _sets.values()):
        raise ValueError(f"a process set {ranks} exists already; use that one instead of a duplicate")
    named(global_process_set, f"process set {ranks}", "barrier").wait()  # It ends the job if the ranks differ.
    if quick.rank() in ranks:
        process_set.group = RankGroup(f"hvd {ranks}", ranks)
    process_set.process_set_id = max(_sets) + 1
    _sets[process_set.process_set_id] = process_set
    return process_set


def remove_process_set(process_set):
    """Returns whether it was there. Collective: all ranks call it, also those outside of the set."""
    check_initialized()
    if process_set is global_process_set or _sets.get(process_set.process_set_id) is not process_set:
        return False
    named(global_process_set, f"remove process set {process_set.ranks}", "barrier").wait()
    if process_set.group is not None:
        process_set.group.shutdown()
    del _sets[process_set.process_set_id]
    process_set.process_set_id = process_set.group = None
    return True


def process_sets():
    return list(_sets.values())


def group_of(process_set):
    check_initialized()
    if _sets.get(process_set.process_set_id) is not process_set:
        raise ValueError(f"the process set {process_set.ranks} is not known; pass it to hvd.init(process_sets=[...])")
    if process_set.group is None:
        raise ValueError(f"rank {quick.rank()} is not in the process set {process_set.ranks}; call its collectives on "
                         "its ranks only")
    return process_set.group


def process_set_ranks(process_set):
    """As fdl_group() takes them: None for all ranks."""
    return list(process_set.ranks) if group_of(process_set) is not global_process_set.group else None


def named(process_set, name, method, *arguments):
    """A collective of the set's group, whose name the timeline and messages show; None: as the operation."""
    group = group_of(process_set)
    group.label = name.encode() if name else None
    try:
        return getattr(group, method)(*arguments)
    finally:
        group.label = None


# --- Ranks ---------------------------------------------------------------------------------------------------------


def rank():
    check_initialized()
    return quick.rank()


def size():
    check_initialized()
    return quick.size()


def local_rank():
    """The index of this rank's GPU: 0 where the rank sees one GPU only, as `farandole run` says in LOCAL_RANK."""
    check_initialized()
    return int(os.environ.get("LOCAL_RANK") or quick.local_rank())


def local_size():
    check_initialized()
    return int(os.environ.get("LOCAL_WORLD_SIZE") or quick.local_size())


def _cross():
    """The hosts with a rank of this rank's place within its host, in the order of their first ranks."""
    check_initialized()
    place = quick.local_rank()
    return [host for host in dict.fromkeys(_hosts) if _hosts.count(host) > place]


def cross_rank():
    return _cross().index(_hosts[quick.rank()])


def cross_size():
    return len(_cross())


def is_homogeneous():
    """Whether all hosts have the same number of ranks."""
    check_initialized()
    return len({_hosts.count(host) for host in _hosts}) == 1


# --- What there is -------------------------------------------------------------------------------------------------


def _yes():
    return True


def _no():
    return False


mpi_built = mpi_enabled = _yes
gloo_built = gloo_enabled = ddl_built = ccl_built = rocm_built = _no


def mpi_threads_supported():
    check_initialized()
    return True


def cuda_built():
    return torch.backends.cuda.is_built()


def nccl_built():
    """The version of PyTorch's NCCL as NCCL numbers it, 0 without."""
    if not (cuda_built() and dist.is_nccl_available()):
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]
    return major * 10000 + minor * 100 + patch
