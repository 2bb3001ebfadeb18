"""How a rank ends. Once it runs, its exit code, its uncaught exception or its hang concerns the whole job."""
import atexit
import faulthandler
import os
import re
import signal
import sys
import time
import traceback

from farandole._core import Error, check, core, quick

_PEER_LOST = 70
_LOSS_TAKES = 1.5  # seconds, until the watchdog has said which rank was lost
# What Gloo, NCCL and TCPStore say when another rank has ended.
_LOST = re.compile(r"[Cc]onnection (was )?(closed|reset|refused)|Broken pipe|Socket closed|remote process exited|"
                   r"recvValue failed|Read error|Write error|writing to a closed|Process group watchdog")

_process = None  # the rank's; forked children inherit all that is set up here
_signal = None
_before = None  # the hook for exceptions that this module calls


def install():
    """Call this after core.init(). What the exit code of the process is then decides how the job ends."""
    global _process, _before
    if _process == os.getpid():
        return
    _process = os.getpid()
    os.environ.setdefault("FARANDOLE_RANK_PROCESS", str(_process))
    if not faulthandler.is_enabled():
        faulthandler.enable(2, all_threads=False)
    show_lines()
    atexit.register(_end)
    if not (sys.flags.interactive or hasattr(sys, "ps1")):
        _before, sys.excepthook = sys.excepthook, _on_exception


def show_lines():
    """Lets reports about a rank name the line of Python that it executes, until hide_lines()."""
    global _signal
    with open("/proc/self/status") as status:
        caught = int(re.search(r"^SigCgt:\s*(\w+)", status.read(), re.M)[1], 16)
    free = (number for number in range(signal.SIGRTMAX - 3, signal.SIGRTMIN, -1) if not caught >> (number - 1) & 1)
    _signal = next(free, None)
    if _signal is not None:
        file = os.memfd_create("farandole")  # stays open as long as the process
        faulthandler.register(_signal, file, all_threads=False)
        check(quick.watch_python(_signal, file))


def hide_lines():
    if _signal is not None:
        faulthandler.unregister(_signal)


def _end():
    if os.getpid() != _process:
        return
    hide_lines()
    core.close_at_exit()
    work = sys.modules.get("farandole._work")
    if work and work._thread:
        work._thread.join()


def code_of(error):
    """The exit code for an exception, and whether it says that another rank was lost. Then it waits until the watchdog
    has said which one."""
    code = error.code if isinstance(error, Error) else 1
    lost = code == _PEER_LOST or bool(_LOST.search(str(error)))
    if lost:
        time.sleep(_LOSS_TAKES)
    return (_PEER_LOST if lost else code), lost


def _on_exception(kind, value, trace):
    if os.getpid() != _process or not quick.is_running():
        return _before(kind, value, trace)
    if issubclass(kind, KeyboardInterrupt):
        _abort(130, "interrupted by SIGINT")
    code, lost = code_of(value)
    if lost and isinstance(value, Error):
        _abort(code, str(value))
    # PyTorch's own hook puts the rank before each line.
    if _before is sys.__excepthook__ or _before.__module__ == "torch.distributed.distributed_c10d":
        text = "".join(traceback.format_exception(kind, value, trace)).rstrip()
        _abort(code, f"the program ended with an exception:\n{text}")
    try:
        _before(kind, value, trace)
    finally:
        _abort(code, f"the program ended with {kind.__name__}: {str(value).partition(chr(10))[0]}")


def _abort(code, text):
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass
    core.abort(code, text.encode(errors="replace"))
