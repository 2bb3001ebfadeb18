"""The phases and steps of a training with torch, without hooks in its modules.

Data is a batch of a DataLoader, forward lasts from the end of the phase before it to the backward pass, and a step ends
with the step of an optimizer. Batches without a backward pass are evaluation. Only the main thread is recorded. Code
that torch.compile traces passes through unrecorded, so that it is compiled in one graph as without this.
"""
import atexit
import functools
import json
import os
import sys
import weakref
from threading import get_ident, main_thread

import torch

from farandole import _start

DATA, FORWARD, BACKWARD, OPTIMIZER, WAIT, CHECKPOINT, EVALUATION, OTHER = 0, 1, 2, 3, 5, 6, 7, 11
_NAMES = {DATA: "data", FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "optimizer", WAIT: "wait",
          CHECKPOINT: "checkpoint", EVALUATION: "evaluation"}
compiling = getattr(torch.compiler, "is_compiling", lambda: False)


class Phases:
    """What the main thread does. Methods without another remark are called by it, while `running`."""

    def __init__(self):
        self.check = self.core = self.quick = None  # until it starts, because loading the library takes time
        self.main = main_thread().ident
        self.running = False
        self.may_start = True
        self.names = {}
        self.number = 0  # of the step, from 0
        self.begun = False  # The first step has begun.
        self.numbered = False  # The program numbers its steps.
        self.depth = 0  # of phases that have begun
        self.last = None  # end of the last phase
        self.last_category = None
        self.batch = None  # (batch size, pass) of the last batch, until a backward pass uses it
        self.epoch_pass, self.epoch = None, 0
        self.samples = 0  # of the step, on this rank
        self.facts = {}
        self.optimizers = weakref.WeakSet()  # that have begun a step
        self.in_step = []  # ids of optimizers
        self.scaled = None  # the optimizer that a GradScaler steps
        self.in_backward = False
        self.sent = self.received = 0  # when the last gradients of this backward pass left, and came back
        self.in_flight = set()
        self.on_start, self.on_close = [], []
        os.register_at_fork(after_in_child=self.leave)

    def leave(self):
        self.running = self.may_start = False

    def here(self, early=False):
        """Whether this thread is recorded now. Starts MPI if the program trains. `early`: it may just prepare data,
        which a single rank may do while the others wait for it in init_process_group."""
        if get_ident() != self.main:
            return False
        return self.running or (self.may_start and not (early and _is_one_of_many()) and self.start())

    def start(self):
        self.may_start = False
        try:
            from farandole._core import check, core, quick
        except ImportError as error:  # The program itself can go on.
            print(f"farandole: nothing is recorded: {error}", file=sys.stderr, flush=True)
            return False
        self.check, self.core, self.quick = check, core, quick
        if failure := core.init():
            core.abort(failure, quick.error())
        self.running = True
        from farandole import _exits
        _exits.install()
        atexit.register(self.close)  # It comes before that of _exits.
        self.names = {category: self.intern(name) for category, name in _NAMES.items()}
        program = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
        self.tell(program=" ".join(program), versions={"torch": torch.__version__})
        for function in self.on_start:
            function()
        return True

    def close(self):
        if not self.running:
            return
        if self.numbered and self.last:
            self.end_own_step(self.last)
        self.leave()
        for function in self.on_close:
            function()

    def intern(self, name):
        return self.quick.intern(name.encode())

    def tell(self, **facts):
        self.facts.update(facts)
        self.core.run_facts(json.dumps(self.facts).encode())

    def annotate(self, name):
        """Begins a span of the program's own. Any thread may call this."""
        if name not in self.names:
            self.names[name] = self.intern(name)
        self.quick.begin(OTHER, self.names[name])

    # --- Phases

    def begin(self, category):
        now = self.quick.now()
        if self.depth == 0 or category == BACKWARD:  # An optimizer may call a closure with the whole step.
            self.fill(category, now)
        self.depth += 1
        self.quick.begin(category, self.names[category])
        if category == OPTIMIZER:
            self.last, self.last_category = now, None

    def end(self, category):
        self.quick.end()
        self.depth -= 1
        self.last, self.last_category = self.quick.now(), category

    def fill(self, category, now):
        """Names the time from the end of the last phase until `now`, when this one begins."""
        self.begin_first_step()
        if self.last is None:
            return
        if category in (FORWARD, BACKWARD):
            between = FORWARD
        elif category == EVALUATION or (category == DATA and self.batch):
            between = EVALUATION
        elif category == OPTIMIZER and self.last_category == BACKWARD:
            between = OPTIMIZER  # for example gradients are clipped
        else:
            return
        self.quick.span(between, self.names[between], self.last, now)

    def begin_backward(self):
        self.begin(BACKWARD)
        self.backward_begin = self.quick.now()
        if self.batch:
            size, token = self.batch
            self.samples += size
            if token is not self.epoch_pass:
                self.epoch += self.epoch_pass is not None
                self.epoch_pass = token
            self.batch = None
        self.in_backward = True
        self.sent = self.received = self.buckets = 0
        self.in_flight = set()

    def end_backward(self):
        self.in_backward = False
        ours = sys.modules.get("farandole._work")
        if ours and ours.last_submitted > self.backward_begin:
            self.sent, self.received = ours.last_submitted, ours.last_completed
        if self.sent:  # DDP waits for the last gradients before backward() returns.
            now = self.quick.now()
            end = now if self.in_flight else min(self.received, now)
            if end > self.sent:
                self.quick.span(WAIT, self.names[WAIT], self.sent, end)
        self.end(BACKWARD)

    def send_gradients(self):
        """DDP has begun to reduce a bucket. Returns a function to call when they come back. Any thread may call both."""
        bucket, in_flight = object(), self.in_flight
        in_flight.add(bucket)
        self.sent = self.quick.now()

        def come():
            in_flight.discard(bucket)
            self.received = self.quick.now()
        return come

    # --- Steps

    def begin_first_step(self):
        if not self.begun:
            self.begun = True
            self.quick.begin_first_step()

    def begin_optimizer(self, optimizer):
        while id(optimizer) in self.in_step:  # Its last step ended with an exception.
            self.in_step.pop()
            self.end(OPTIMIZER)
        if optimizer not in self.optimizers:
            self.optimizers.add(optimizer)
            weakref.finalize(optimizer, self.quick.forget_optimizer, id(optimizer)).atexit = False
        self.in_step.append(id(optimizer))
        self.begin(OPTIMIZER)

    def end_optimizer(self, optimizer):
        if id(optimizer) not in self.in_step:
            return
        self.in_step.pop()
        self.end(OPTIMIZER)
        counted = self.quick.end_step(id(optimizer), self.last)
        if not counted:
            return
        if not self.numbered:
            self.number += counted
        if self.samples and self.number < 3 and self.facts.get("global_batch") != self.samples * self.quick.size():
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            self.tell(global_batch=self.samples * self.quick.size(), parameters=sum(p.numel() for p in parameters),
                      device=parameters[0].device.type if parameters else "cpu")
        self.samples = 0

    def end_own_step(self, end):
        """The step of a program without an optimizer."""
        if not self.optimizers:
            self.quick.end_step(None, end)

    def begin_step(self, number):
        """The program begins its step of this number, and from now on it counts them itself."""
        if not self.here():
            return
        self.begin_first_step()
        if self.numbered:
            self.end_own_step(self.quick.now())
        self.numbered, self.number = True, number
        self.quick.set_step(number)


def _is_one_of_many():
    from torch import distributed
    many = any(os.environ.get(size, "1") != "1" for size in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"))
    return many and not (distributed.is_available() and distributed.is_initialized())


def replace(function, *owners):
    """Calls function(original, …) in place of the function of this name in each of the owners."""
    name = function.__name__
    original = getattr(owners[0], name)

    @functools.wraps(original)
    def called(*arguments, **named):
        if compiling():
            return original(*arguments, **named)
        return function(original, *arguments, **named)

    for owner in owners:
        if getattr(owner, name, None) is original:
            setattr(owner, name, called)


def install():
    """Returns the Phases of this process."""
    phases = Phases()
    _watch_data(phases)
    _watch_passes(phases)
    _watch_optimizers(phases)
    _watch_checkpoints(phases)
    return phases


def _watch_data(phases):
    from torch.utils.data import dataloader

    def __iter__(original, loader):
        if not phases.here(early=True):
            return original(loader)
        phases.begin(DATA)  # Workers start.
        try:
            batches = original(loader)
        finally:
            phases.end(DATA)
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 0
        batches._farandole = size if isinstance(size, int) else 0, object()
        return batches

    def __next__(original, batches):
        if not phases.here(early=True):
            return original(batches)
        phases.begin(DATA)
        phases.batch = None
        try:
            batch = original(batches)
            phases.batch = getattr(batches, "_farandole", (0, None))
            return batch
        finally:
            phases.end(DATA)

    replace(__iter__, dataloader.DataLoader)
    replace(__next__, dataloader._BaseDataLoaderIter)


def _watch_passes(phases):
    def backward(original, *arguments, **named):
        if phases.in_backward or not phases.here():
            return original(*arguments, **named)
        phases.begin_backward()
        try:
            return original(*arguments, **named)
        finally:
            phases.end_backward()

    def forward(original, *arguments, **named):
        if not phases.here():
            return original(*arguments, **named)
        category = FORWARD if torch.is_grad_enabled() else EVALUATION
        phases.begin(category)
        try:
            return original(*arguments, **named)
        finally:
            phases.end(category)

    replace(backward, torch.autograd)
    if torch.distributed.is_available():
        replace(forward, torch.nn.parallel.DistributedDataParallel)


def _watch_optimizers(phases):
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer, *_):
        if not compiling() and phases.scaled is not optimizer and phases.here():
            phases.begin_optimizer(optimizer)

    def after(optimizer, *_):
        if not compiling() and phases.scaled is not optimizer and phases.here():
            phases.end_optimizer(optimizer)

    def step(original, scaler, optimizer, *arguments, **named):
        """A GradScaler leaves out the optimizer's step if a gradient is not finite, but the program's step ends."""
        if phases.scaled is not None or not phases.here():
            return original(scaler, optimizer, *arguments, **named)
        phases.begin_optimizer(optimizer)
        phases.scaled = optimizer
        try:
            return original(scaler, optimizer, *arguments, **named)
        finally:
            phases.scaled = None
            phases.end_optimizer(optimizer)

    def update(original, *arguments, **named):
        if not phases.here():
            return original(*arguments, **named)
        phases.begin(OPTIMIZER)
        try:
            return original(*arguments, **named)
        finally:
            phases.end(OPTIMIZER)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    replace(step, scaler)
    replace(update, scaler)


def _watch_checkpoints(phases):
    def saving(name):
        def save(original, *arguments, **named):
            if phases.depth or not phases.running or not phases.here():
                return original(*arguments, **named)
            phases.begin(CHECKPOINT)
            try:
                return original(*arguments, **named)
            finally:
                phases.end(CHECKPOINT)
        save.__name__ = name
        return save

    def watch_distributed():
        saver = sys.modules["torch.distributed.checkpoint.state_dict_saver"]
        for name in "save", "async_save":
            if hasattr(saver, name):
                replace(saving(name), saver)

    replace(saving("save"), torch, torch.serialization)
    _start.after("torch.distributed.checkpoint.state_dict_saver", watch_distributed)
