"""Gradients that are averaged or summed over the ranks while a backward pass runs.

Hooks may run on any thread of a backward pass; the rest belongs to the training thread.
"""
import threading

import torch
from torch.distributed import distributed_c10d as c10d

from farandole._core import Error, quick
from farandole._phases import WAIT
from farandole.torch._ranks import named, process_set_ranks
from farandole.torch._slots import slots_for

_SMALL = 16384  # bytes; copying several such gradients in one call takes less time
_FEW = 32


class _Gradient:
    """That of one parameter. Its slot is None until the end of the first step."""

    __slots__ = "name", "parameter", "exchange", "left", "is_small", "slots", "index", "slot", "is_ready", "sparse"

    def __init__(self, name, parameter, exchange):
        self.name, self.parameter, self.exchange = name, parameter, exchange
        self.left = exchange.passes  # backward passes until it is complete
        self.is_small = parameter.numel() * parameter.element_size() <= _SMALL
        self.slots = self.index = self.slot = None
        self.is_ready = False
        self.sparse = 0  # sparse dimensions, if it was sparse

    def arrive(self, parameter):
        """A backward pass has added to parameter.grad."""
        exchange = self.exchange
        exchange.has_begun = True
        left = self.left - 1
        if left:
            if left < 0:
                raise AssertionError(
                    f"the gradient of {self.name} was computed more than backward_passes_per_step="
                    f"{exchange.passes} times before step(); increase backward_passes_per_step, or call "
                    "requires_grad_(False) on parameters that this backward pass is not for")
            self.left = left
            return
        self.left = 0
        gradient = parameter.grad
        assert not gradient.requires_grad, "gradients that have gradients themselves are not exchanged"
        if self.slot is None:
            exchange.order.append(self)
            return
        exchange.waiting.append((self, gradient if gradient.layout is torch.strided else self.dense(gradient)))
        if not self.is_small or len(exchange.waiting) >= _FEW:
            exchange.send()

    def dense(self, gradient):
        if gradient.layout is torch.strided:
            return gradient
        self.sparse = gradient.sparse_dim()
        return gradient.to_dense()

    def received(self):
        """The slot as the parameter has it."""
        return self.slot.to_sparse(self.sparse) if self.sparse else self.slot


class Exchange:
    """The gradients of one optimizer. Each has a slot in memory that the ranks reduce. They get slots at the end of
    the first step in which their parameters need gradients, because a script may move or freeze parameters until then.
    """

    def __init__(self, process_set, is_average, compression, passes, factor):
        self.process_set, self.ranks = process_set, process_set_ranks(process_set)
        self.is_average, self.compression = is_average, compression  # by name, as fdl_reducer() takes it
        self.passes = passes
        self.factor = factor  # by which gradients are divided before they are summed, and multiplied afterwards
        self.has_begun = False  # since the last synchronize()
        self.gradients = {}  # by parameter
        self.hooks = {}  # by parameter
        self.slots = []
        self.order = []  # those without a slot, as they came in this step
        self.waiting = []  # (gradient, its value): complete, and not yet in their slots
        self.sending = threading.Lock()
        self.wait_name = quick.intern(b"wait")

    def add(self, name, parameter):
        if parameter.numel():
            self.gradients[parameter] = _Gradient(name, parameter, self)
            self.watch(parameter)

    def watch(self, parameter):
        if parameter.requires_grad and parameter not in self.hooks:  # A hook stays if the parameter is frozen.
            self.hooks[parameter] = parameter.register_post_accumulate_grad_hook(self.gradients[parameter].arrive)

    def stop(self):
        """No hook runs after this."""
        for hook in self.hooks.values():
            hook.remove()

    def expect(self, passes):
        self.passes = passes
        for gradient in self.gradients.values():
            gradient.left = passes

    def send(self):
        """Puts the waiting gradients into their slots, where the parameters' gradients are from now on."""
        with self.sending:
            waiting = self.waiting[:]
            del self.waiting[:len(waiting)]
        if not waiting:
            return
        gradients, values = zip(*waiting)
        slots = [gradient.slot for gradient in gradients]
        torch._foreach_copy_(slots, values)
        if self.factor != 1.0:
            torch._foreach_div_(slots, self.factor)
        for gradient in gradients:
            gradient.parameter.grad = gradient.slot
            gradient.is_ready = True
            gradient.slots.ready(gradient.index)

    def synchronize(self):
        """Afterwards, each parameter has the gradient of all ranks, or none if no rank has one."""
        with torch.no_grad():
            self.send()
            new = []
            for gradient in self.gradients.values():
                if gradient.slot is None and gradient.parameter.requires_grad:
                    new.append(gradient)
            for slots in self.slots:
                self._finish(slots)
            if new:
                self._begin(new)
        self.expect(self.passes)
        self.has_begun = False

    def _wait(self, slots):
        quick.begin(WAIT, self.wait_name)
        try:
            slots.finish()
        finally:
            quick.end()

    def _finish(self, slots):
        missing = [gradient for gradient in slots.gradients if not gradient.is_ready]
        for gradient in missing:  # The program has set it itself, or there were fewer passes.
            if gradient.parameter.grad is not None:
                self.waiting.append((gradient, gradient.dense(gradient.parameter.grad)))
        self.send()
        self._wait(slots)
        if self.factor != 1.0:
            torch._foreach_mul_(slots.views, self.factor)
        for gradient in slots.gradients:
            if gradient.sparse or not gradient.is_ready:
                if slots.present(gradient.index):
                    gradient.parameter.grad = gradient.received()
            gradient.is_ready = False

    def _begin(self, new):
        """The first step of gradients, which are reduced in the order in which they have come."""
        place = {gradient: index for index, gradient in enumerate(self.order)}
        self.order = []
        here = torch.ones(1)
        named(self.process_set, "first step", "allreduce", [here], c10d.AllreduceOptions()).wait()
        if here < self.process_set.size():
            raise Error("a rank has called hvd.join() before the first step with gradients of these parameters: "
                        f"{new[0].name}, ...; every rank needs at least one batch of the first epoch", 64)
        for slots in slots_for(new, self):
            for gradient in sorted(slots.gradients, key=lambda gradient: place.get(gradient, len(place))):
                if gradient.parameter.grad is not None:
                    torch.div(gradient.dense(gradient.parameter.grad), self.factor, out=gradient.slot)
                    slots.ready(gradient.index)
            self._wait(slots)
            for gradient in slots.gradients:
                if slots.present(gradient.index):
                    value = gradient.received() * self.factor  # a copy, because replan() may change the slots
                    gradient.parameter.grad = value
            slots.replan()
            self.slots.append(slots)
            for gradient in slots.gradients:
                self.watch(gradient.parameter)
