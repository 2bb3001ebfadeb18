"""Records a PyTorch program: phases, steps, and collectives of all ranks.

`import farandole.record` is enough in a program that `farandole run` has started. `farandole run --trace-torch`, and
FARANDOLE_TRACE=1 or `farandole record` for any launcher, do it for an unchanged program. What the main thread of each
rank's own process does is recorded. In other processes, and without these, the functions below do nothing. Importing
this starts nothing: the recording starts with init_process_group, a backward pass or an optimizer's step, and under
`farandole run` also with a batch.
"""
import contextlib
import ctypes
import json
import math
import sys

from farandole import _start

__all__ = ["log", "span", "step", "stopping"]

_phases = None  # if this process is a rank and has imported torch
_said = set()  # what log() has complained about


def _install():
    global _phases
    from farandole import _observe, _phases as phases
    _phases = phases.install()
    _observe.install(_phases)


def _running():
    return _phases is not None and _phases.running


class span(contextlib.ContextDecorator):
    """Records a block, or each call of a function, under a name: `with span("augment"):` or `@span("augment")`. The
    names of phases, such as "data", make it a part of them."""

    def __init__(self, name):
        self.name = name
        self._begun = []  # of nested uses of this object

    def __enter__(self):
        self._begun.append(_running())
        if self._begun[-1]:
            _phases.begin_span(self.name)
        return self

    def __exit__(self, *_):
        if self._begun.pop() and _phases.running:
            _phases.end_span()


def step(number):
    """Begins the step of this number, and ends the one before. Without it, the steps of the optimizer are counted."""
    if _phases is not None:
        _phases.begin_step(number)


def log(epoch=None, **values):
    """Writes numbers of the current step, such as loss=…, to RUN/metrics.jsonl; null for one that is not finite. Only
    rank 0 reads them, so a tensor on a GPU makes the others wait for nothing."""
    if not _running() or _phases.quick.rank() != 0:
        return
    numbers = {name: float(value) for name, value in values.items()}
    for name, number in numbers.items():
        if not math.isfinite(number):
            _complain(name, f"step {_phases.number}: {name} is {number}; metrics.jsonl has null for such values")
            numbers[name] = None
    epoch = _phases.epoch if epoch is None else epoch
    if _phases.core.log(_phases.number, epoch, json.dumps(numbers).encode()):
        _complain(None, f"a line of metrics is lost: {_phases.quick.error().decode(errors='replace')}")


def _complain(about, text):
    if about not in _said:
        _said.add(about)
        print("farandole: " + text, file=sys.stderr, flush=True)


def stopping():
    """Whether the program should save and end with exit code 75: on any rank after SIGTERM or SIGUSR1. Always false
    unless `farandole run` has started the program.
    Collective: all ranks call it, for example after each step."""
    if not _running() or _phases.guest:
        return False
    answer = ctypes.c_int()
    _phases.check(_phases.core.agree(_phases.quick.stop_requested(), ctypes.byref(answer)))
    return bool(answer.value)


if not _start.is_off() and (_start.is_guest() or _start.is_rank()):
    _start.after("torch", _install)
