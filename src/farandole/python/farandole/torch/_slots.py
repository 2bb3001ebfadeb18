"""Memory in which the gradients of some parameters are reduced: of the C library's reducer, or on a GPU.

Any thread may call ready(). The rest belongs to the training thread.
"""
import ctypes
import hashlib
import itertools
import threading

import torch
from torch.distributed import ReduceOp, distributed_c10d as c10d

from farandole import _tensors
from farandole._core import Error, check, core, count, quick
from farandole.torch._ranks import named

_BUCKET_BYTES = 25 << 20
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def slots_for(gradients, exchange):
    """For all gradients of one kind of device together. Collective: the ranks have the same gradients."""
    devices = dict.fromkeys(gradient.parameter.device for gradient in gradients)
    for device in devices:
        kind = HostSlots if device.type == "cpu" else GpuSlots
        yield kind([gradient for gradient in gradients if gradient.parameter.device == device], exchange)


def _layout(parameter):
    """Its dimensions from the slowest to the fastest, if it has dense memory in such an order."""
    order = sorted(range(parameter.dim()), key=lambda dimension: -parameter.stride(dimension))
    return order if parameter.permute(order).is_contiguous() else list(range(parameter.dim()))


class _Memory:
    """A reducer. It lives until the last gradient in its memory is gone."""

    def __init__(self, handle):
        self.handle = handle

    def __del__(self):
        if quick is not None and quick.is_running():
            core.reducer_free(self.handle)


class _Slots:
    def __init__(self, gradients):
        self.gradients = gradients
        self.views = []
        for index, gradient in enumerate(gradients):
            gradient.slots, gradient.index = self, index

    def give(self, views):
        """A view of contiguous memory for each gradient, which has the strides of its parameter."""
        self.views = []
        for gradient, view in zip(self.gradients, views):
            order = _layout(gradient.parameter.detach())
            shape = [gradient.parameter.shape[dimension] for dimension in order]
            gradient.slot = view.view(shape).permute([order.index(dimension) for dimension in range(len(order))])
            self.views.append(gradient.slot)


class HostSlots(_Slots):
    def __init__(self, gradients, exchange):
        super().__init__(gradients)
        parameters = [gradient.parameter.detach() for gradient in gradients]
        for gradient in gradients:
            if not gradient.parameter.is_floating_point():
                raise Error(f"the gradient of {gradient.name} is {gradient.parameter.dtype}, which the ranks cannot "
                            "reduce; use a floating-point type", 64)
        count, ranks = len(gradients), exchange.ranks or []
        # Ranks whose parameters have other strides have another shape here, which the reducer reports.
        shapes = [[parameter.shape[dimension] for dimension in _layout(parameter)] for parameter in parameters]
        sizes = list(itertools.chain.from_iterable(shapes))
        handle = ctypes.c_void_p()
        check(core.reducer(
            (ctypes.c_int * len(ranks))(*ranks) if ranks else None, len(ranks), count,
            (ctypes.c_char_p * count)(*[gradient.name.encode() for gradient in gradients]),
            (ctypes.c_int * count)(*[_tensors.plan_for(parameter.dtype, ReduceOp.SUM)[0] for parameter in parameters]),
            (ctypes.c_int * count)(*map(len, shapes)), (ctypes.c_int64 * len(sizes))(*sizes),
            _tensors.AVERAGE if exchange.is_average else _tensors.SUM, exchange.compression.encode(), 0, handle))
        self.memory = _Memory(handle)
        self.handle = handle.value
        self._map()

    def _map(self):
        views = []
        for index, gradient in enumerate(self.gradients):
            size = _tensors.byte_size(gradient.parameter)
            buffer = (ctypes.c_char * size).from_address(quick.reducer_data(self.handle, index))
            buffer.memory = self.memory
            views.append(torch.frombuffer(buffer, dtype=gradient.parameter.dtype))
        self.give(views)

    def ready(self, index):
        check(quick.reducer_ready(self.handle, index))

    def finish(self):
        check(core.reducer_finish(self.handle))

    def join(self):
        return count(core.reducer_join, self.handle)

    def present(self, index):
        return quick.reducer_present(self.handle, index)

    def replan(self):
        """Nothing may use the slots any more."""
        changed = ctypes.c_int()
        check(core.reducer_replan(self.handle, changed))
        if changed.value:
            self._map()


class GpuSlots(_Slots):
    """Buckets on one GPU, each of one type. A bucket is reduced when it and all earlier ones are full, because NCCL
    needs the same order on all ranks. Behind its gradients, one element for each says whether a rank has it, and the
    last one whether any rank has steps."""

    has_steps = True

    def __init__(self, gradients, exchange):
        # The last layer's gradients come first.
        super().__init__(sorted(reversed(gradients), key=_type_of))
        self.process_set, self.cast = exchange.process_set, _DTYPES.get(exchange.compression)
        self.options = c10d.AllreduceOptions()
        self.options.reduceOp = ReduceOp.AVG if exchange.is_average else ReduceOp.SUM
        self.options.asyncOp = True
        self._check_alike()
        self.lock = threading.Lock()
        self.buckets, views = [], []
        for _, alike in itertools.groupby(self.gradients, _type_of):
            bucket, size = [], 0
            for gradient in alike:
                bucket.append(gradient)
                size += _tensors.byte_size(gradient.parameter)
                if size >= _BUCKET_BYTES:
                    views += self._make_bucket(bucket)
                    bucket, size = [], 0
            if bucket:
                views += self._make_bucket(bucket)
        self.give(views)
        self.bucket_of = [number for number, (places, *_) in enumerate(self.buckets) for _ in places]
        self._expect()

    def _check_alike(self):
        text = "".join(f"{gradient.name} {_type_of(gradient)} {[*gradient.parameter.shape]} "
                       f"{_layout(gradient.parameter)};" for gradient in self.gradients)
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        both = torch.tensor([number, -number])
        options = c10d.AllreduceOptions()
        options.reduceOp = ReduceOp.MAX
        named(self.process_set, "parameters", "allreduce", [both], options).wait()
        if both.sum():
            raise Error("the ranks have different parameters on their GPUs, by name, type, shape or strides; build the "
                        "same model on every rank", 64)

    def _make_bucket(self, gradients):
        counts = [gradient.parameter.numel() for gradient in gradients]
        first = gradients[0]
        memory = torch.zeros(sum(counts) + len(counts) + 1, dtype=first.parameter.dtype, device=first.parameter.device)
        *views, flags = memory.split([*counts, len(counts) + 1])
        self.buckets.append((range(first.index, first.index + len(counts)), memory, flags))
        return views

    def _expect(self):
        self.here = [False] * len(self.gradients)
        self.missing = [len(places) for places, *_ in self.buckets]
        self.started, self.works = 0, []
        self.is_anywhere = None  # of all gradients, once someone has asked in this step

    def ready(self, index):
        with self.lock:
            self.here[index] = True
            self.missing[self.bucket_of[index]] -= 1
            while self.started < len(self.buckets) and not self.missing[self.started]:
                self._start(self.started)

    def _start(self, number):
        places, memory, flags = self.buckets[number]
        flags.fill_(1)
        if not self.has_steps:
            flags[-1] = 0
        for at in places:
            if not self.here[at]:
                self.views[at].zero_()
                flags[at - places.start] = 0
        sent = memory.to(self.cast) if self.cast and memory.element_size() > 2 else memory
        work = named(self.process_set, f"bucket {number}", "allreduce", [sent], self.options)
        self.works.append((work, sent, memory))
        self.started += 1

    def finish(self):
        while self.started < len(self.buckets):
            self._start(self.started)
        for work, sent, memory in self.works:
            work.wait()
            if sent is not memory:
                memory.copy_(sent)
        self._expect()

    def present(self, index):
        if self.is_anywhere is None:  # which waits for the GPU
            self.is_anywhere = torch.cat([flags[:-1] > 0 for _, _, flags in self.buckets]).tolist()
        return self.is_anywhere[index]

    def replan(self):
        pass


def join_on_gpus(all_slots):
    """For hvd.join(): takes part in the steps of the other ranks without gradients, and returns their number. NCCL
    needs the same order on all ranks, so each step of the others must use all of these slots, in this order."""
    steps = -1
    for slots in all_slots:
        slots.has_steps = False
    goes_on = True
    while goes_on:
        steps += 1
        for slots in all_slots:
            slots.finish()
        goes_on = any(slots.buckets[-1][2][-1] > 0 for slots in all_slots)
    for slots in all_slots:
        slots.has_steps = True
    return steps


def _type_of(gradient):
    return str(gradient.parameter.dtype)
