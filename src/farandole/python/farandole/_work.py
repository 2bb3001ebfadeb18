"""Collectives that were started and end later: their handles, and the thread that completes their futures.

Any thread may use a Work, one at a time.
"""
import ctypes
import sys
import threading

import torch
from torch.distributed import Work as _TorchWork

from farandole._core import Error, check, core, quick

# The callbacks of these hooks start no collectives, so they may run on the completion thread.
_HOOKS_WITHOUT_COLLECTIVES = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"

last_submitted = 0  # fdl_now() when an asynchronous collective was started, and when one with a future ended
last_completed = 0

# Before 2.8, C++ code of torch does not keep the Python object of a call, and would wait without end once it is gone.
# So objects that nobody has asked yet stay here, at most _MOST_KEPT of them.
_torch_forgets = torch.__version__ < "2.8"
_MOST_KEPT = 1000
_unasked = {}

_pending = {}  # by ticket: what fdl_next_done() will tell the end of
_thread = None
_starting = threading.Lock()


class Future(torch.futures.Future):
    """The callbacks of a communication hook run in the order of the buckets, because they may start collectives."""

    def then(self, callback):
        if torch._C._current_graph_task_id() != -1 and callback.__module__ != _HOOKS_WITHOUT_COLLECTIVES:
            self.wait()
        return super().then(callback)


class _BaseWork(_TorchWork):
    _is_asked = not _torch_forgets  # whether someone has waited or taken the future

    def _asked(self):
        if _torch_forgets:
            self._is_asked = True
            _unasked.pop(self, None)

    def __del__(self):
        if not self._is_asked and not sys.is_finalizing():
            _unasked[self] = None
            if len(_unasked) > _MOST_KEPT:
                del _unasked[next(iter(_unasked))]

    def result(self):
        return self._result

    def synchronize(self):
        self.wait()

    def block_current_stream(self):
        self.wait()


class Work(_BaseWork):
    """`result` is for the future. `keep` holds what the call reads and writes. `finish` follows its success."""

    def __init__(self, ticket, result, keep=None, finish=None):
        super().__init__()
        self._ticket = ticket  # 0: has ended, and someone has waited
        self._result = result
        self._keep = keep
        self._finish = finish
        self._future = None
        self._error = None
        self.sender = None

    def wait(self, timeout=None):
        self._asked()
        limit = timeout.total_seconds() if timeout else 0
        if not self.ends_within(limit or -1.0):
            raise Error(f"a collective has not ended within {limit:g} s")
        return True

    def ends_within(self, seconds):
        if self._future is not None:
            self._future.wait()
        elif self._ticket:
            done = ctypes.c_int(1)
            result = core.wait(self._ticket, seconds, done)
            if not done.value:
                return False
            self._ticket = 0
            if result:
                self._error = Error(quick.error().decode(errors="replace"), result)
            else:
                self._end()
        if self._error:
            raise self._error
        return True

    def _end(self):
        if self._finish:
            with torch.no_grad():
                self._finish()
        self._keep = self._finish = None

    def get_future(self):
        self._asked()
        self._make_future()
        return self._future

    def _make_future(self):
        if self._future is None:
            if self._ticket and threading.current_thread() is _thread:  # which cannot wait for itself
                self.wait()
            self._future = Future()
            if self._ticket:
                _tell_end(self._ticket, self)
            else:
                self._future.set_result(self._result)

    def ended(self, error, code):
        """The completion thread calls this. After set_exception() DDP would read an empty value and crash."""
        if error is not None:
            core.abort(code, error)
        self._ticket = 0
        self._end()
        self._future.set_result(self._result)

    def is_completed(self):
        if self._future is not None:
            return self._future.done()
        if self._ticket and quick.test(self._ticket):
            try:
                self.wait()
            except Error:
                pass  # exception() has it
        return not self._ticket

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error

    def source_rank(self):
        return self.sender.value

    _source_rank = source_rank

    def __del__(self):
        super().__del__()
        if self._ticket and self._future is None and not sys.is_finalizing():
            if self in _unasked:
                self._make_future()
            else:
                _tell_end(self._ticket, _Abandoned(self._keep, self._finish))


class _Abandoned:
    """A call for which nobody waits. Its buffers live until it has ended."""

    def __init__(self, keep, finish):
        self._keep = keep
        self._finish = finish

    def ended(self, error, code):
        if error is not None:
            core.abort(code, error)
        if self._finish:
            with torch.no_grad():
                self._finish()


class Works(_BaseWork):
    """Several as one."""

    def __init__(self, works, result):
        super().__init__()
        self._works = works
        self._result = result

    def wait(self, timeout=None):
        self._asked()
        return all([work.wait() for work in self._works])

    def get_future(self):
        self.wait()
        future = Future()
        future.set_result(self._result)
        return future

    def is_completed(self):
        return all([work.is_completed() for work in self._works])

    def is_success(self):
        return all([work.is_success() for work in self._works])

    def exception(self):
        return next((work.exception() for work in self._works if work.exception()), None)


def together(works, result):
    return works[0] if len(works) == 1 else Works(works, result)


def _tell_end(ticket, call):
    global _thread
    if _thread is None:
        with _starting:
            if _thread is None:
                _thread = threading.Thread(target=_complete, name="farandole", daemon=True)
                _thread.start()
    _pending[ticket] = call
    check(quick.notify(ticket))


def _complete():
    global last_completed
    result = ctypes.c_int()
    while True:
        ticket = core.next_done(-1.0, result)
        if ticket < 0:
            return
        if ticket:
            last_completed = quick.now()
            error = quick.error() if result.value else None
            _pending.pop(ticket).ended(error, result.value)


DONE = Work(0, [])  # of all calls that have ended before they return
