"""The phases and steps of a training with torch, without hooks in its modules.

Data is a batch of a DataLoader, forward lasts from the call of a module with parameters to the backward pass, and a
step ends with the step of an optimizer. Without a class for its optimizer, a program's step ends where the next forward
pass or batch begins. Passes without gradients, and batches without a backward pass, are evaluation. Only the main
thread is recorded. Code that torch.compile traces passes through unrecorded, so that it is compiled as without this.
"""
import atexit
import functools
import json
import os
import sys
import time
import weakref
from collections.abc import Mapping
from threading import get_ident, main_thread

import torch

from farandole import _guest, _start

DATA, FORWARD, BACKWARD, OPTIMIZER, WAIT, CHECKPOINT, EVALUATION, OTHER = 0, 1, 2, 3, 5, 6, 7, 11
_NAMES = {DATA: "data", FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "optimizer", WAIT: "wait",
          CHECKPOINT: "checkpoint", EVALUATION: "evaluation", OTHER: "before forward"}
_CATEGORIES = {name: category for category, name in _NAMES.items() if category != OTHER}
_SOON = 30  # seconds
_OPEN = None, OPTIMIZER, OTHER  # Other phases may begin within these.
_OF_OUR_RANKS = "farandole.torch", "farandole.torch_backend"  # Their collectives need the ranks of a job of ours.
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
        self.counted = 0  # steps
        self.inner = [None]  # categories of the phases and spans that have begun, the innermost last
        self.is_within = False  # a phase in which no other begins
        self.last = None  # end of the last phase
        self.last_category = None
        self.is_fetching = False  # a batch
        self.batches = None  # _Batches of the last batch
        self.epoch_batches, self.epoch = None, 0
        self.samples = 0  # of the step, on this rank
        self.facts = {}
        self.models = weakref.WeakKeyDictionary()  # by module: is_trained(), when so many were trained
        self.with_gradients = weakref.WeakSet()  # modules that were called so
        self.trained = set()  # ids of their parameters
        self.passed = False  # A pass has begun since the last batch or backward pass.
        self.evaluating = False  # No backward pass has followed on the last batch.
        self.has_optimizer = False  # One was made.
        self.stepped = False  # Without one: a backward pass has ended since the last step.
        self.optimizers = weakref.WeakSet()  # that have begun a step
        self.in_step = []  # ids of optimizers
        self.is_one_step = False  # What optimizers do now is one step.
        self.in_backward = False
        self.sent = self.received = 0  # when the last gradients of this backward pass left, and came back
        self.in_flight = set()
        self.on_start, self.on_close = [], []
        self.guest = _guest.Guest() if _start.is_guest() else None
        os.register_at_fork(after_in_child=self.leave)

    def leave(self):
        self.may_start = self.may_start and self.guest is not None and self.guest.thread is None
        self.running = False
        self.main = get_ident()

    def may_run(self):
        """Also if it only begins later."""
        return self.running or (self.guest is not None and self.may_start)

    def here(self, early=False):
        """Whether this thread is recorded now. Starts the recording if the program trains. `early`: it may just prepare
        data, which a single rank may do while the others wait for it in init_process_group."""
        if get_ident() != self.main:
            return False
        return self.running or (self.may_start and self.start(early))

    def start(self, early):
        if self.guest is not None and not any(name in sys.modules for name in _OF_OUR_RANKS):
            return self.start_as_guest(early)
        if early and _is_one_of_many():
            return False
        self.guest = None
        self.may_start = False
        try:
            from farandole._core import check, core, quick
        except ImportError as error:
            return _say_nothing_is_recorded(_why_not_all(str(error)))
        self.check, self.core, self.quick = check, core, quick
        if not quick.is_running() and (why_not := _why_not_all()):
            return _say_nothing_is_recorded(why_not)
        if core.init():
            why_not = quick.error().decode(errors="replace")
            if _why_not_all(meeting="failed"):
                core.abort(1, f"{why_not}; other ranks wait for this one".encode())
            return _say_nothing_is_recorded(why_not)
        from farandole import _exits
        _exits.install()
        return self.begin_to_record()

    def start_as_guest(self, early):
        """This thread waits for nothing, so the recording begins with a later call."""
        if self.guest.thread is None and (early or not self.guest.may_begin()):
            return False
        self.may_start = not self.guest.failed
        if self.guest.recorder is None:
            return False
        self.may_start = False
        self.check, self.core, self.quick = self.guest.recorder
        try:
            from farandole import _exits
            atexit.register(_exits.hide_lines)
            _exits.show_lines()
            return self.begin_to_record()
        except Exception as error:
            self.running = False
            self.guest.say(error)
            return False

    def begin_to_record(self):
        self.running = True
        atexit.register(self.close)  # It comes before that of _exits or _guest.
        _watch_executions(self)
        self.names = {category: self.intern(name) for category, name in _NAMES.items()}
        program = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
        self.tell(program=" ".join(program), versions={"torch": torch.__version__})
        for function in self.on_start:
            function()
        return True

    def close(self):
        if not self.running:
            return
        if self.last and (self.numbered or self.stepped):
            self.end_own_step(self.last)
        self.leave()
        for function in self.on_close:
            function()

    def intern(self, name):
        return self.quick.intern(name.encode())

    def tell(self, **facts):
        self.facts.update(facts)
        facts = json.dumps(self.facts).encode()
        if self.guest:
            return self.guest.later(self.core.run_facts, facts)
        self.core.run_facts(facts)

    # --- Phases

    def begin(self, category, name=None):
        now = self.quick.now()
        if not self.is_within:  # An optimizer may call a closure with the whole step.
            self.fill(category, now)
        self.inner.append(category)
        self.is_within = category not in _OPEN
        self.quick.begin(category, self.names[name or category])
        if category in _OPEN:
            self.last, self.last_category = self.quick.now(), None

    def end(self, category):
        self.quick.end()
        self.inner.pop()
        self.is_within = self.inner[-1] not in _OPEN
        self.last, self.last_category = self.quick.now(), category

    def fill(self, category, now):
        """Names the time from the end of the last phase until `now`, when this one begins."""
        self.begin_first_step()
        if self.last is None:
            return
        before, between = self.last_category, None
        if category == BACKWARD or (before == FORWARD and category in (FORWARD, EVALUATION, OTHER)):
            between = FORWARD  # for example the loss
        elif self.inner[-1] is not None:
            pass
        elif category == FORWARD:
            between = OTHER
        elif category in (DATA, EVALUATION) and before in (DATA, EVALUATION, FORWARD):
            between = EVALUATION
        elif before == BACKWARD and (category == OPTIMIZER or (category == DATA and self.stepped)):
            between = OPTIMIZER  # for example gradients are clipped
        if between is not None:
            self.quick.span(between, self.names[between], self.last, now)
        if self.stepped and category in (DATA, FORWARD):
            self.stepped = False
            self.end_own_step(now)

    def begin_span(self, name):
        """Begins a span of the program's own, which end_span() ends. Its name may be that of a phase. Any thread may
        call this."""
        if name not in self.names:
            self.names[name] = self.intern(name)
        if get_ident() == self.main:
            return self.begin(_CATEGORIES.get(name, OTHER), name)
        self.quick.begin(OTHER, self.names[name])

    def end_span(self):
        if get_ident() == self.main:
            return self.end(self.inner[-1])
        self.quick.end()

    def is_trained(self, module):
        """Whether gradients were computed for parameters of the module; None if it has no parameters."""
        known, trained = self.models.get(module, (-1, None))
        if known != len(self.trained):
            parameters = {id(parameter) for parameter in module.parameters()}
            trained = not self.trained.isdisjoint(parameters) if parameters else None
            self.models[module] = len(self.trained), trained
        return trained

    def pass_of(self, module):
        """What a call of the module is: forward, evaluation or neither. Without gradients, what is not trained may be a
        teacher, which is a part of the step."""
        trained = self.is_trained(module)
        if trained is None:
            return None
        self.passed = True
        if not torch.is_grad_enabled():
            return FORWARD if self.trained and not trained and not self.evaluating else EVALUATION
        if self.evaluating and not module.training:
            return EVALUATION
        if module not in self.with_gradients:
            self.with_gradients.add(module)
            self.trained.update(id(parameter) for parameter in module.parameters() if parameter.requires_grad)
        return FORWARD

    def begin_batch(self):
        self.evaluating = self.evaluating or self.passed
        self.passed = False
        self.begin(DATA)

    def begin_backward(self):
        self.begin(BACKWARD)
        self.backward_begin = self.quick.now()
        self.passed = self.evaluating = False
        if self.batches:  # Several may have been fetched before, to accumulate gradients.
            self.samples += self.batches.samples
            self.batches.samples = 0
            if self.batches is not self.epoch_batches:
                self.epoch += self.epoch_batches is not None
                self.epoch_batches = self.batches
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
        self.stepped = not (self.has_optimizer or self.numbered)

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
            self.has_optimizer = True
            self.stepped = False
            self.optimizers.add(optimizer)
            weakref.finalize(optimizer, self.quick.forget_optimizer, id(optimizer)).atexit = False
        self.in_step.append(id(optimizer))
        self.begin(OPTIMIZER)

    def end_optimizer(self, optimizer):
        if id(optimizer) not in self.in_step:
            return
        self.in_step.pop()
        self.end(OPTIMIZER)
        self.end_step(id(optimizer), self.last, _parameters_of(optimizer))

    def end_own_step(self, end):
        """The step of a program without an optimizer."""
        if not self.optimizers:
            self.end_step(None, end)

    def end_step(self, optimizer, end, parameters=()):
        counted = self.quick.end_step(optimizer, end)
        if not counted:
            return
        self.counted += counted
        if not self.numbered:
            self.number += counted
        global_batch = self.samples * self.quick.size()
        if global_batch and self.counted <= 3 and self.facts.get("global_batch") != global_batch:
            parameters = list(parameters)
            if parameters:
                self.facts.update(parameters=sum(map(_whole_size, parameters)), device=parameters[0].device.type)
            self.tell(global_batch=global_batch)
        self.samples = 0

    def begin_step(self, number):
        """The program begins its step of this number, and from now on it counts them itself."""
        if not self.here():
            return
        self.begin_first_step()
        if self.numbered:
            self.end_own_step(self.quick.now())
        self.numbered, self.number, self.stepped = True, number, False
        self.quick.set_step(number)


def _say_nothing_is_recorded(why):
    """The program itself can go on. The reason is that of all ranks, or of those on a host."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"farandole: nothing is recorded: {why}", file=sys.stderr, flush=True)
    return False


def _is_one_of_many():
    from torch import distributed
    many = any(os.environ.get(size, "1") != "1" for size in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"))
    return many and not (distributed.is_available() and distributed.is_initialized())


def _why_not_all(own="", meeting="ready"):
    """Why not all ranks are here or come soon; the ranks would wait for one that does not. `own`: why this one
    does not. "" also if the ranks cannot ask each other."""
    from torch import distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return own
    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    if str(ranks) != os.environ.get("WORLD_SIZE"):
        return own
    store = distributed.PrefixStore(f"farandole {meeting}", distributed.distributed_c10d._get_default_store())
    try:
        if own:
            store.compare_set("all", "", f"rank {rank}: {own}")
        elif store.add("ranks", 1) == ranks:
            store.compare_set("all", "", "come")
        late = time.monotonic() + _SOON
        while not store.check(["all"]):  # It does not complain, as wait() does.
            if time.monotonic() > late:
                store.compare_set("all", "", "not all ranks can record; start all of them by the same command")
            time.sleep(0.01)
        answer = store.get("all").decode(errors="replace")
        return "" if answer == "come" else answer
    except RuntimeError:  # The program finds out itself what is the matter.
        return own or "the ranks have lost each other"


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


class _Batches:
    """What an iterator of a DataLoader has given."""

    def __init__(self, loader):
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        self.size = size if isinstance(size, int) else None
        self.samples = 0  # that no backward pass has used yet

    def add(self, batch):
        self.samples += self.size or _first_length(batch)


def _first_length(batch):
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 0
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    return _first_length(batch[0]) if isinstance(batch, (list, tuple)) and batch else 0


def _parameters_of(optimizer):
    """Of an engine of DeepSpeed, the optimizer has only this rank's part."""
    if isinstance(optimizer, torch.nn.Module):
        return optimizer.parameters()
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _whole_size(parameter):
    return getattr(parameter, "ds_numel", None) or parameter.numel()  # ZeRO 3 leaves empty ones.


def install():
    """Returns the Phases of this process."""
    phases = Phases()
    _watch_data(phases)
    _watch_passes(phases)
    _watch_optimizers(phases)
    _watch_checkpoints(phases)
    return phases


def _watch_executions(phases):
    """The process that executes another program stays a process of MPI, which cannot start twice in it. What a guest
    executes may be recorded anew."""
    def leave():
        phases.close()
        phases.core.close()
        if phases.guest:
            return
        os.environ.update(_start.NO_RANK)
        print("farandole: the rest is not recorded, because this process executes another program", file=sys.stderr,
              flush=True)

    def execv(original, *arguments):
        if phases.running:
            leave()
        return original(*arguments)

    def execve(original, path, arguments, environment):
        if phases.running:
            leave()
            environment = environment if phases.guest else {**environment, **_start.NO_RANK}
        return original(path, arguments, environment)

    replace(execv, os)
    replace(execve, os)


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
        batches._farandole = _Batches(loader)
        return batches

    def __next__(original, batches):
        if phases.is_fetching or not phases.here(early=True):
            return original(batches)
        phases.begin_batch()
        phases.is_fetching = True
        try:
            batch = original(batches)
            phases.batches = getattr(batches, "_farandole", None)
            if phases.batches:
                phases.batches.add(batch)
            return batch
        finally:
            phases.is_fetching = False
            phases.end(DATA)

    def watch_graphs():  # PyTorch Geometric fetches features in an iterator of its own.
        replace(__next__, sys.modules["torch_geometric.loader.base"].DataLoaderIterator)

    replace(__iter__, dataloader.DataLoader)
    replace(__next__, dataloader._BaseDataLoaderIter)
    _start.after("torch_geometric.loader.base", watch_graphs)


def _watch_passes(phases):
    def backward(original, *arguments, **named):
        if phases.in_backward or not phases.here():
            return original(*arguments, **named)
        phases.begin_backward()
        try:
            return original(*arguments, **named)
        finally:
            phases.end_backward()

    original = torch.nn.Module.__call__

    @functools.wraps(original)
    def __call__(module, *arguments, **named):
        """Also called for each module in a module, so that it does little there."""
        if phases.is_within or compiling() or compiles() or not phases.here(early=True):
            return original(module, *arguments, **named)
        category = phases.pass_of(module)
        if category is None:
            return original(module, *arguments, **named)
        phases.begin(category)
        try:
            return original(module, *arguments, **named)
        finally:
            phases.end(category)

    def skip():  # so that torch.compile begins at the same function as without this
        sys.modules["torch._dynamo.decorators"].skip_code(__call__.__code__)

    # Whether this runs between graphs of torch.compile.
    compiles = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)
    _start.after("torch._dynamo.decorators", skip)
    torch.nn.Module.__call__ = __call__
    for name in "utils", "variables.nn_module":  # They ask whether a module is called in a special way.
        known = sys.modules.get("torch._dynamo." + name)
        if getattr(known, "unpatched_nn_module_call", None) is original:
            known.unpatched_nn_module_call = __call__
    replace(backward, torch.autograd)


def _watch_optimizers(phases):
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer, *_):
        if not compiling() and not phases.is_one_step and phases.here():
            phases.begin_optimizer(optimizer)

    def after(optimizer, *_):
        if not compiling() and not phases.is_one_step and phases.here():
            phases.end_optimizer(optimizer)

    def do_as_one_step(optimizer, function, *arguments, **named):
        if phases.is_one_step or not phases.here():
            return function(*arguments, **named)
        phases.begin_optimizer(optimizer)
        phases.is_one_step = True
        try:
            return function(*arguments, **named)
        finally:
            phases.is_one_step = False
            phases.end_optimizer(optimizer)

    def step(original, scaler, optimizer, *arguments, **named):
        """A GradScaler leaves out the optimizer's step if a gradient is not finite, but the program's step ends."""
        return do_as_one_step(optimizer, original, scaler, optimizer, *arguments, **named)

    def _take_model_step(original, engine, *arguments, **named):
        """An engine of DeepSpeed may leave it out, too, or call it for each group of parameters."""
        return do_as_one_step(engine, original, engine, *arguments, **named)

    def watch_engine():
        engine = sys.modules["deepspeed.runtime.engine"].DeepSpeedEngine
        if hasattr(engine, "_take_model_step"):
            replace(_take_model_step, engine)

    def update(original, *arguments, **named):
        if not phases.here():
            return original(*arguments, **named)
        phases.begin(OPTIMIZER)
        try:
            return original(*arguments, **named)
        finally:
            phases.end(OPTIMIZER)

    def __init__(original, *arguments, **named):
        phases.has_optimizer = True
        original(*arguments, **named)

    replace(__init__, torch.optim.Optimizer)
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    replace(step, scaler)
    replace(update, scaler)
    _start.after("deepspeed.runtime.engine", watch_engine)


def _watch_checkpoints(phases):
    def saving(name):
        def save(original, *arguments, **named):
            if phases.is_within or not phases.running or not phases.here():
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
