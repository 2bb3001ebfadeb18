"""Collectives of torch.distributed, as each rank enters and leaves them: on Gloo, NCCL and other backends of torch.

The methods of ProcessGroup are replaced, and DDP's reducer, which is written in C++, gets a group that calls them. On
memory of the CPU, a call ends when its result is there. With GPUs, only the moment is recorded at which the host has
given the call to the GPU, because nothing here may wait for a GPU: its operation is "launch allreduce" and so on.
The backend of Farandole records its own calls.
"""
import ctypes
import sys
import time
import weakref
import zlib

import torch
from torch import distributed

from farandole import _start
from farandole._phases import WAIT, replace

# By method: its operation, and the arguments of which the first with data has the bytes.
_METHODS = {
    "broadcast": ("broadcast", (0,)),
    "allreduce": ("allreduce", (0,)),
    "allreduce_coalesced": ("allreduce", (0,)),
    "reduce": ("reduce", (0,)),
    "allgather": ("all_gather", (0,)),
    "_allgather_base": ("all_gather", (0,)),
    "allgather_coalesced": ("all_gather", (0,)),
    "allgather_into_tensor_coalesced": ("all_gather", (0,)),
    "gather": ("gather", (0, 1)),
    "scatter": ("scatter", (1, 0)),
    "reduce_scatter": ("reduce_scatter", (1,)),
    "_reduce_scatter_base": ("reduce_scatter", (1,)),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", (1,)),
    "alltoall_base": ("all_to_all", (1,)),
    "alltoall": ("all_to_all", (1,)),
    "barrier": ("barrier", ()),
}
_SHORT_NS = 20_000  # A wait below this is not recorded.
_LATE = 10.0  # seconds
_in_flight = weakref.WeakSet()  # what threads of torch will call


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _tensors(element)


class _Call:
    """A function that torch calls when a collective has ended, on a thread of its own. The thread then also drops it,
    for which it needs Python's lock once more."""
    __slots__ = "function", "__weakref__"

    def __init__(self, function):
        self.function = function

    def __call__(self, _):
        self.function()


def _at_end(work, function):
    call = _Call(function)
    _in_flight.add(call)
    work.get_future().add_done_callback(call)


def _await_calls():
    """A thread that asks for Python's lock while Python ends would end the process. A collective that was started is
    waited for, as torch does it when its groups are destroyed."""
    end = time.monotonic() + _LATE
    while _in_flight and time.monotonic() < end:
        time.sleep(0.001)


class _Calls:
    """Those of a group, which all ranks count from its first one on, whether they are recorded or not."""
    __slots__ = "count", "observed"

    def __init__(self):
        self.count, self.observed = 0, None


class Observer:
    def __init__(self, phases):
        self.phases = phases
        self.groups = {}  # _Calls by group
        self.bridges = {}  # of reducers that live
        self.refused = False
        self.jobs = 0  # that init_process_group has made: torch numbers the groups of each from 0
        self.wait = distributed.Work.wait

    @property
    def quick(self):
        return self.phases.quick

    def start(self):
        """The job has begun to run, or a group was made: all groups of this rank that are not observed yet."""
        if not self.phases.running or self.refused or not distributed.is_initialized():
            return
        if (distributed.get_rank(), distributed.get_world_size()) != (self.quick.rank(), self.quick.size()):
            self.refused = True
            print(f"farandole: the collectives of torch.distributed are not recorded: its rank "
                  f"{distributed.get_rank()} of {distributed.get_world_size()} is rank {self.quick.rank()} of "
                  f"{self.quick.size()} of the job; give init_process_group the RANK and WORLD_SIZE of the environment",
                  file=sys.stderr, flush=True)
            return
        for group in distributed.distributed_c10d._world.pg_map:
            calls = self.calls_of(group)
            if calls and calls.observed is None:
                self.observe(group, calls, calls.count)

    def calls_of(self, group):
        calls, known = self.groups.get(group), distributed.distributed_c10d._world.pg_map
        if calls is None and type(group) is distributed.ProcessGroup and group in known:
            calls = self.groups.setdefault(group, _Calls())
        return calls

    def enter(self, group, operation, name, size, waits):
        """What observes the group, and the number of its next call, which begins. The former is None if nothing is
        recorded."""
        calls = self.calls_of(group)
        if calls is None:
            return None, -1
        calls.count += 1
        if not self.phases.running or self.refused:
            return None, -1
        if calls.observed is None and not self.observe(group, calls, calls.count - 1):
            return None, -1
        return calls.observed, self.quick.enter(calls.observed, operation, name, size, waits)

    def leave(self, observed, number, come):
        self.quick.leave(observed, number)
        if come:
            come()

    def observe(self, group, calls, first_call):
        observed, ranks = ctypes.c_void_p(), distributed.get_process_group_ranks(group)
        # torch counts the groups that all ranks make. It names others by a hash of their ranks.
        name = distributed.distributed_c10d._world.pg_names[group]
        number = int(name) + self.jobs * 1000 if name.isdigit() else zlib.crc32(f"{self.jobs} {name}".encode())
        number = number % 16384 + 16384 * (not name.isdigit())
        if self.quick.observe((ctypes.c_int * len(ranks))(*ranks), len(ranks), number, first_call,
                              ctypes.byref(observed)):
            self.refused = True  # The job has ended.
        else:
            calls.observed = observed
        return not self.refused

    def forget(self):
        living = distributed.distributed_c10d._world.pg_map
        for group in [group for group in self.groups if group not in living]:
            observed = self.groups.pop(group).observed
            if observed is not None:
                self.quick.observe_end(observed)

    def call(self, function, method, name, group, arguments, named, of_backward=False):
        """Calls function(group, …), a collective, and records it. `of_backward`: it reduces gradients."""
        if not self.phases.running:
            self.enter(group, None, None, 0, False)
            return function(group, *arguments, **named)
        operation, places = _METHODS[method]
        size, on_host = 0, True
        for place in places:
            if place < len(arguments):
                for tensor in _tensors(arguments[place]):
                    size += tensor.numel() * tensor.element_size()
                    on_host = on_host and tensor.device.type == "cpu"
            if size:
                break
        if not on_host:
            operation = "launch " + operation
        options = arguments[-1] if arguments else named.get("opts")
        waits = on_host and not getattr(options, "asyncOp", True)
        quick, text = self.quick, operation.encode()
        observed, number = self.enter(group, text, name.encode() if name else text, size, waits)
        if observed is None:
            return function(group, *arguments, **named)
        leaves_later = False
        try:
            work = function(group, *arguments, **named)
            if waits and work is not None:
                self.wait(work)
            elif on_host and work is not None:
                come = self.phases.send_gradients() if of_backward else None
                _at_end(work, lambda: self.leave(observed, number, come))
                leaves_later = True
            return work
        finally:
            if not leaves_later:
                quick.leave(observed, number)


class _Bridge(distributed.ProcessGroup):
    """The group that the reducer of DDP sees."""

    def __init__(self, group, observer):
        super().__init__(group.rank(), group.size())
        self.group, self.observer = group, observer
        for device in group._device_types:  # for the log of DDP
            backend = group._get_backend(device)
            kind = getattr(distributed.ProcessGroup.BackendType, backend.name().upper(), None)
            if kind is not None:
                self._register_backend(device, kind, backend)

    def getBackendName(self):
        return self.group.name()

    def allreduce(self, tensors, opts):
        phases = self.observer.phases
        if not (phases.running and phases.in_backward):
            return self.group.allreduce(tensors, opts)
        name = f"bucket {phases.buckets}"
        phases.buckets += 1
        return self.observer.call(_originals["allreduce"], "allreduce", name, self.group, (tensors, opts), {}, True)

    def broadcast(self, tensors, opts):
        return self.group.broadcast(tensors, opts)

    def allgather(self, outputs, inputs, opts):
        return self.group.allgather(outputs, inputs, opts)


_originals = {}


def _watch_methods(observer):
    for method in _METHODS:
        original = getattr(distributed.ProcessGroup, method, None)
        if original is None:
            continue
        _originals[method] = original

        def called(self, *arguments, _original=original, _method=method, **named):
            return observer.call(_original, _method, None, self, arguments, named)

        # pybind11 asks by this name whether a method of a subclass calls that of its base class.
        called.__code__ = called.__code__.replace(co_name=method)
        called.__name__, called.__doc__ = method, original.__doc__
        setattr(distributed.ProcessGroup, method, called)


def _leave_uncompiled(*functions):
    """Between the graphs that torch.compile makes of a backward pass, it would compile these in vain."""
    from torch._dynamo.decorators import skip
    methods = [getattr(distributed.ProcessGroup, method) for method in _originals]
    for function in [*functions, *methods, _Bridge.allreduce, _Bridge.broadcast]:
        skip(getattr(function, "__func__", function))


def install(phases):
    if not distributed.is_available():
        return
    observer = Observer(phases)
    phases.on_start.append(observer.start)
    phases.on_close.append(_await_calls)
    _watch_methods(observer)

    def init_process_group(original, *arguments, **named):
        original(*arguments, **named)
        observer.jobs += 1
        if phases.here():
            observer.start()

    def new_group(original, *arguments, **named):
        group = original(*arguments, **named)
        observer.start()
        return group

    def destroy_process_group(original, *arguments, **named):
        original(*arguments, **named)
        observer.forget()

    def wait(self, *arguments, **named):
        if not (phases.running and phases.here()):
            return observer.wait(self, *arguments, **named)
        begin = phases.quick.now()
        done = observer.wait(self, *arguments, **named)
        now = phases.quick.now()
        if now - begin >= _SHORT_NS:
            phases.quick.span(WAIT, phases.names[WAIT], begin, now)
        return done

    make_reducer = distributed.Reducer

    def reducer_of(parameters, buckets, limits, group, *arguments, **named):
        if not phases.may_run() or observer.refused or observer.calls_of(group) is None:
            return make_reducer(parameters, buckets, limits, group, *arguments, **named)
        bridge = _Bridge(group, observer)
        reducer = make_reducer(parameters, buckets, limits, bridge, *arguments, **named)
        observer.bridges[id(reducer)] = bridge
        weakref.finalize(reducer, observer.bridges.pop, id(reducer), None)
        return reducer

    def _broadcast_coalesced(original, group, tensors, *arguments, **named):
        """Buffers, which DDP sends from rank 0. It returns when they are there, or have been given to the GPU."""
        on_host = all(tensor.device.type == "cpu" for tensor in tensors)
        observed, number = observer.enter(group, b"broadcast" if on_host else b"launch broadcast", b"buffers",
                                          sum(tensor.numel() * tensor.element_size() for tensor in tensors), on_host)
        if observed is None:
            return original(group, tensors, *arguments, **named)
        try:
            return original(group, tensors, *arguments, **named)
        finally:
            observer.quick.leave(observed, number)

    c10d = distributed.distributed_c10d
    for function in init_process_group, new_group, destroy_process_group:
        replace(function, c10d, distributed)
    distributed.Work.wait = wait
    distributed.Reducer = reducer_of
    replace(_broadcast_coalesced, distributed)
    _start.after("torch._dynamo.decorators", lambda: _leave_uncompiled(observer.call, wait))
