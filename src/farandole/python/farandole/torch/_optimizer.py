"""DistributedOptimizer: an optimizer whose gradients are those of all ranks.

Thread safety: call from the training thread only.
"""
import contextlib
import warnings
import weakref
from collections import Counter

import torch
from torch.utils import _foreach_utils

from farandole._phases import replace
from farandole.torch import _ranks
from farandole.torch._gradients import Exchange
from farandole.torch._ranks import Adasum, Average, Sum, global_process_set
from farandole.torch.compression import Compression

_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)  # torch has faster functions for these on CPUs
_living = []  # weak references to all distributed optimizers
_fuses_on_cpu = "cpu" in getattr(_foreach_utils, "_get_fused_kernels_supported_devices", list)()


class _Distributed:
    """What DistributedOptimizer() adds to the class of an optimizer."""

    def synchronize(self):
        """Waits until the gradients are those of all ranks. step() does this, too."""
        if self._exchange is not None:
            self._exchange.synchronize()
        self._is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Within it, step() uses the gradients as they are after synchronize(), for example clipped ones."""
        self._skips = True
        try:
            yield
        finally:
            self._skips = False

    def step(self, closure=None):
        if self._exchange is not None:
            has_begun = self._exchange.has_begun
            if self._skips and has_begun:
                raise AssertionError("step() within skip_synchronize() needs the gradients of all ranks; call "
                                     "synchronize() after the backward pass")
            if closure is not None:
                closure = self._with_all_ranks(closure)
            if not self._skips and (has_begun or not (self._is_synchronized or closure)):
                self.synchronize()
        with _fused(self):
            result = super().step(*(() if closure is None else (closure,)))
        self._is_synchronized = False
        return result

    step.hooked = True  # The hooks of steps run in the step of the optimizer's own class.

    def _with_all_ranks(self, closure):
        """An optimizer that decides by the loss must do the same on all ranks."""
        def evaluate():
            loss = closure()
            self.synchronize()
            if loss is None:
                return None
            value = torch.as_tensor(loss, dtype=torch.float64).detach().cpu().reshape(1).clone()
            _ranks.named(self.process_set, "loss", "allreduce", [value]).wait()
            if self.op == Average:
                value /= self.process_set.size()
            return value[0].to(loss.device, loss.dtype) if isinstance(loss, torch.Tensor) else value.item()
        return evaluate

    def zero_grad(self, *arguments, **named):
        if self._exchange is not None and self._exchange.has_begun:
            raise AssertionError("zero_grad() after backward() and before step() or synchronize() would lose gradients "
                                 "that other ranks are about to receive; call step() or synchronize() first")
        self._is_synchronized = False
        return super().zero_grad(*arguments, **named)

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes
        if self._exchange is not None:
            self._exchange.expect(passes)

    def add_param_group(self, param_group):
        """Collective: all ranks add the same."""
        super().add_param_group(param_group)
        if self._exchange is not None:
            number = len(self.param_groups) - 1
            for index, parameter in enumerate(self.param_groups[-1]["params"]):
                self._exchange.add(self._names.get(parameter, f"allreduce.noname.{number}.{index}"), parameter)


@contextlib.contextmanager
def _fused(optimizer):
    """A step of SGD, Adam or AdamW on CPUs takes less time in torch's fused functions, which a program that has chosen
    nothing gets for this step. They differ by rounding."""
    groups = []
    if _fuses_on_cpu and type(optimizer).__mro__[2] in _FUSED:
        groups = [group for group in optimizer.param_groups if _can_fuse(group)]
    for group in groups:
        group["fused"] = True
    try:
        yield
    finally:
        for group in groups:
            group["fused"] = None


def _can_fuse(group):
    if group.get("fused", True) is not None or group["foreach"] is not None or group.get("differentiable") or \
            not isinstance(group["lr"], float):
        return False
    for parameter in group["params"]:
        gradient = parameter.grad
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu" or (
                gradient is not None and (gradient.layout is not torch.strided or
                                          gradient.stride() != parameter.stride())):
            return False
    return True


def _named(optimizer, named_parameters):
    """Names by parameter."""
    if named_parameters is None:
        return {parameter: f"allreduce.noname.{number}.{index}" for number, group in enumerate(optimizer.param_groups)
                for index, parameter in enumerate(group["params"])}
    named_parameters = list(named_parameters)
    if any(not isinstance(one, tuple) for one in named_parameters):
        raise ValueError("named_parameters must be tuples (name, parameter), as model.named_parameters() gives them")
    if twice := sorted(name for name, count in Counter(name for name, _ in named_parameters).items() if count > 1):
        raise ValueError(f"the names in named_parameters must be unique; {', '.join(twice)} appears more than once")
    by_parameter = {parameter: name for name, parameter in named_parameters}
    nameless = [f"{number}.{index} of shape {tuple(parameter.shape)}"
                for number, group in enumerate(optimizer.param_groups)
                for index, parameter in enumerate(group["params"]) if parameter not in by_parameter]
    if nameless:
        raise ValueError("named_parameters must name all parameters of the optimizer; without a name are (group.index) "
                         + ", ".join(nameless))
    return by_parameter


def _check_groups(groups):
    """Groups change nothing else, because the gradients of a bucket are always reduced together."""
    if groups is None:
        return
    if not isinstance(groups, list):
        if not isinstance(groups, int) or groups <= 0:
            raise ValueError("groups must be a positive integer or a list of lists of torch.Tensor")
        return
    seen = set()
    for parameter in (parameter for group in groups for parameter in group):
        if not isinstance(parameter, torch.Tensor):
            raise ValueError("groups must have torch.Tensor only")
        if parameter in seen:
            raise ValueError("a parameter can be in groups once only")
        seen.add(parameter)


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1,
                         op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set):
    """An optimizer of the same class as `optimizer`, with its parameters and state. It averages (op=Average) or sums
    (op=Sum) the gradients of all ranks of `process_set` while backward() runs, and step() waits for them.

    Between synchronize() and `with skip_synchronize(): step()`, the gradients of all ranks can be changed. A gradient
    that this rank does not have counts as zeros; if no rank has it, it stays None. The value of a closure is that of
    all ranks. Sparse gradients are sent as dense ones, whatever `sparse_as_dense` says.

    Throws: ValueError if an argument cannot be used; Error in the first step if the ranks have different parameters.
    Collective: all ranks of the set take the same steps.
    """
    _ranks.check_initialized()
    if process_set.size() is None:
        _ranks.group_of(process_set)  # which says that it is not known
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is one of hvd.DistributedOptimizer() already; pass it once")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if num_groups != 0:
        warnings.warn("num_groups is now called groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if op == Adasum and process_set.size() > 1:
        raise ValueError("Farandole does not have op=hvd.Adasum; use hvd.Average, with a rate for the larger batch")
    if op not in (Average, Sum, Adasum):
        raise ValueError("gradients can be averaged or summed; use op=hvd.Average or op=hvd.Sum")
    if not isinstance(getattr(compression, "name", None), str):
        raise ValueError("gradients have the compressions hvd.Compression.none, fp16 and bf16; pass one of them")
    names = _named(optimizer, named_parameters)
    _check_groups(groups)

    kind = type(optimizer)
    distributed = object.__new__(type(kind.__name__, (_Distributed, kind), {}))
    distributed.__dict__.update(optimizer.__dict__)
    distributed.__dict__.pop("step", None)  # A scheduler of the given optimizer may have put its step there.
    distributed.param_groups = list(optimizer.param_groups)
    distributed.backward_passes_per_step = backward_passes_per_step
    distributed.op, distributed.process_set = op, process_set
    distributed._names, distributed._exchange = names, None
    distributed._skips = distributed._is_synchronized = False
    if process_set.included() and process_set.size() > 1:
        exchange = distributed._exchange = Exchange(process_set, op == Average, compression.name,
                                                    backward_passes_per_step, gradient_predivide_factor)
        for group in distributed.param_groups:
            for parameter in group["params"]:
                exchange.add(names[parameter], parameter)
        weakref.finalize(distributed, exchange.stop).atexit = False
    _living.append(weakref.ref(distributed))
    return distributed


def living():
    """The distributed optimizers that exist, in the order in which they were made."""
    _living[:] = [optimizer for optimizer in _living if optimizer() is not None]
    return [optimizer() for optimizer in _living]


def _watch_scaler():
    """A GradScaler reads and divides the gradients before it calls step(): they must be those of all ranks by then."""
    def _unscale_grads_(original, scaler, optimizer, *arguments, **named):
        if isinstance(optimizer, _Distributed) and optimizer._exchange is not None and \
                (optimizer._exchange.has_begun or not optimizer._is_synchronized):
            optimizer.synchronize()
        return original(scaler, optimizer, *arguments, **named)

    replace(_unscale_grads_, getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler)


_watch_scaler()
