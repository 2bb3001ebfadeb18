"""Calls a function on ranks that `farandole run` starts, and returns their values to this process, the driver.

Any thread may call run(). Importing this starts nothing.
"""
import codecs
import io
import json
import linecache
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import types

from farandole._worker import open_own

_PREEMPTED = 75
_PATIENCE = 10  # seconds, in which the ranks may end by themselves before they are told again
_OF_TRIALS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
              "FARANDOLE_RUN_DIR", "FARANDOLE_RANK_PROCESS")  # The driver may have set them for a trial without ranks.
# Lets the ranks end with the driver, however it ends; Ctrl-C is for the driver. Python cannot do this safely between
# fork and exec.
_WITH_DRIVER = """import ctypes, os, sys
os.setpgid(0, 0)
ctypes.CDLL(None).prctl(1, 15)
os.getppid() == int(sys.argv[1]) or sys.exit(143)
os.execv(sys.argv[2], sys.argv[2:])"""


class RankError(RuntimeError):
    """A rank has failed: `rank`, its `traceback` (text; empty if no exception ended it), and the exit `code`."""

    def __init__(self, message, rank=None, traceback="", code=1):
        super().__init__(message)
        self.rank, self.traceback, self.code = rank, traceback, code


def run(function, args=(), kwargs=None, ranks=1, *, run_dir=None, environment=None, local=False, stdout=None,
        stderr=None, timestamps=False, trace=True, values="all"):
    """Calls function(*args, **kwargs) on each rank. Returns the values in the order of the ranks.

    run_dir: where the run is recorded; the default is a new folder in $FARANDOLE_RUNS or farandole-runs.
    environment: variables of the ranks, beside those of the driver.
    local: all ranks on this machine, also in a Slurm job.
    stdout, stderr: a file, a path or anything with write(); the default is the driver's own.
    timestamps: put rank and time before each line.
    values: "first": only rank 0 returns its value; the others return None.

    Raises RankError if a rank fails, and RuntimeError if the job cannot start. If this call is interrupted, the ranks
    end before it does.
    """
    if os.environ.get("FARANDOLE_SUPERVISED"):
        raise RuntimeError("this process is a rank already, and a rank cannot start ranks; start the script with "
                           "farandole python instead of farandole run")
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise ValueError(f"{ranks!r} is not a number of ranks; give 1 or more")
    cloudpickle = pickler()
    is_ours = not run_dir
    run_dir = _new_run() if is_ours else os.path.abspath(run_dir)
    call = _make(lambda: tempfile.mkdtemp(prefix="call-", dir=_folder(run_dir)), run_dir)
    try:
        with open(os.path.join(call, "payload"), "wb") as file:
            path = [os.path.abspath(entry) for entry in sys.path]
            pickle.dump({"path": path, "values": values, "source": _source_of(function)}, file)
            _pickler_of(cloudpickle)(file).dump((function, tuple(args), dict(kwargs or {})))
        command = [find_program(), "run", "-n", str(ranks), "--oversubscribe", "--horovod", "--run-dir", run_dir]
        command += ["--local"] * local + ["--prefix"] * timestamps + ["--trace-torch"] * trace
        # Not -m farandole._worker, which imports first from the current folder, where others may have left modules.
        command += ["--", sys.executable or "python3", os.path.join(os.path.dirname(os.path.abspath(__file__)), "_worker.py")]
        command.append(call)
        command.append(getattr(function, "__qualname__", type(function).__name__))  # for the reports
        code = _launch(command, _environment(call, environment), stdout, stderr)
        returned = _values(call, ranks, values, code)
        if is_ours and os.path.exists(os.path.join(run_dir, "timeline.json.gz")):
            print(f"farandole: recorded; farandole analyze {os.path.relpath(run_dir)} says where the time went",
                  file=sys.stderr, flush=True)
        return returned
    finally:
        shutil.rmtree(call, ignore_errors=True)


def pickler():
    """The package cloudpickle, or the one in pyspark."""
    try:
        import cloudpickle
    except ImportError:
        try:
            from pyspark import cloudpickle
        except ImportError:
            raise RuntimeError("functions cannot be sent to ranks without cloudpickle; install it: "
                               "python3 -m pip install cloudpickle") from None
    return cloudpickle


def code_of_file(file, *arguments):
    return types.CodeType(*arguments).replace(co_filename=file)


def _pickler_of(cloudpickle):
    class Pickler(cloudpickle.CloudPickler):
        """Keeps the names of source files, which newer versions of cloudpickle leave out. Tracebacks need them."""

        def reducer_override(self, value):
            if type(value) is types.CodeType:
                return code_of_file, (value.co_filename, *self.dispatch_table[types.CodeType](value)[1])
            return super().reducer_override(value)

    return Pickler


def _source_of(function):
    """The file of the function and its lines, which exist only here if it was written in a notebook."""
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    return file, linecache.getlines(file)


def find_program():
    """The path of the program `farandole`."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4, "bin", "farandole")
    library = os.environ.get("FARANDOLE_LIBRARY")
    of_library = library and os.path.join(os.path.dirname(library), "..", "bin", "farandole")
    for program in os.environ.get("FARANDOLE_PROGRAM"), beside, of_library, shutil.which("farandole"):
        if program and os.access(program, os.X_OK):
            return os.path.abspath(program)
    raise RuntimeError("the program farandole is not found; add its folder to PATH, or start the script with "
                       "farandole python")


def _folder(path):
    os.makedirs(path, exist_ok=True)
    return path


def _make(function, folder):
    try:
        return function()
    except FileExistsError:
        raise
    except OSError as error:
        raise RuntimeError(f"the run directory {folder} cannot be made: {error.strerror}; name another folder for "
                           "the records of runs in FARANDOLE_RUNS") from None


def _new_run():
    parent = os.path.abspath(os.environ.get("FARANDOLE_RUNS") or "farandole-runs")
    _make(lambda: _folder(parent), parent)
    about = os.stat(parent)
    if about.st_uid not in (os.getuid(), 0) or about.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        raise RuntimeError(f"other users can exchange the files of runs in {parent}; name a folder of your own for the "
                           "records of runs in FARANDOLE_RUNS")
    name = os.path.join(parent, time.strftime("%Y%m%d-%H%M%S"))
    for number in range(1, 1000):
        run_dir = name if number == 1 else f"{name}-{number}"
        try:
            _make(lambda: os.mkdir(run_dir), run_dir)
            return run_dir
        except FileExistsError:
            pass
    raise RuntimeError(f"{parent} has a thousand runs of this second; name another folder in FARANDOLE_RUNS")


def _environment(call, more):
    environment = {name: value for name, value in os.environ.items() if name not in _OF_TRIALS}
    environment.update({name: str(value) for name, value in (more or {}).items()})
    # If the driver is killed, the launcher ends the ranks and removes the folder.
    environment["FARANDOLE_LAUNCHED_BY"] = f"{os.getpid()}:{call}"
    return environment


def _launch(command, environment, stdout, stderr):
    """Returns the exit code."""
    out, err = _Sink(stdout, sys.stdout), _Sink(stderr, sys.stderr)
    with out, err, _sigterm_raises():
        launcher = subprocess.Popen(
            [sys.executable or "python3", "-ISc", _WITH_DRIVER, str(os.getpid()), *command], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        pumps = [threading.Thread(target=out.copy, args=(launcher.stdout,), daemon=True),
                 threading.Thread(target=err.copy, args=(launcher.stderr,), daemon=True)]
        try:
            for pump in pumps:
                pump.start()
            return launcher.wait()
        except BaseException as error:
            _end(launcher, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            if isinstance(error, SystemExit) and launcher.returncode == _PREEMPTED:
                error.code = _PREEMPTED  # The ranks have saved.
            raise
        finally:
            for pump in pumps:
                pump.join(_PATIENCE)  # A process that a rank has left behind may hold the pipe.


def _end(launcher, number):
    """Ends the launcher and its ranks. The third signal kills them."""
    while launcher.poll() is None:
        launcher.send_signal(number)
        try:
            launcher.wait(_PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            number = signal.SIGTERM


class _sigterm_raises:
    """SIGTERM of the driver raises SystemExit, unless the program has a handler."""

    def __enter__(self):
        self.ours = (threading.current_thread() is threading.main_thread() and
                     signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
        if self.ours:
            signal.signal(signal.SIGTERM, self.handle)

    def __exit__(self, *_):
        if self.ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @staticmethod
    def handle(number, _):
        raise SystemExit(128 + number)


class _Sink:
    """Where the lines of the ranks go: a path, or an object with write(), for text or for bytes."""

    def __init__(self, to, own):
        self.opened = isinstance(to, (str, os.PathLike))
        self.stream = open(to, "ab") if self.opened else own if to is None else to
        self.text = not isinstance(self.stream, (io.RawIOBase, io.BufferedIOBase)) and \
            "b" not in str(getattr(self.stream, "mode", ""))
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.opened:
            self.stream.close()

    def copy(self, pipe):
        """Copies what comes in the pipe, at once."""
        for chunk in iter(lambda: os.read(pipe.fileno(), 65536), b""):
            try:
                self.stream.write(self.decoder.decode(chunk) if self.text else chunk)
                self.stream.flush()
            except (AttributeError, OSError, ValueError):
                pass  # It was closed meanwhile. The ranks' logs have everything.


def _values(call, ranks, values, code):
    if code:
        raise _failure(call, code)
    wanted = ranks if values == "all" else 1
    files = [os.path.join(call, f"value-{rank}") for rank in range(wanted)]
    for rank, file in enumerate(files):
        if not os.path.exists(file):
            raise RankError(f"rank {rank} has ended before its function has returned, for example by os._exit(0); "
                            "return from the function", rank)
    return [_load(file) for file in files] + [None] * (ranks - wanted)


def _failure(call, code):
    """The exception for what the launcher says about the end (launch/call_end.h)."""
    try:
        with open(os.path.join(call, "end.json")) as file:
            end = json.load(file)
    except OSError:
        return RuntimeError(f"farandole run was ended; its exit code is {code}")
    if end["rank"] is None:
        return RuntimeError(end["message"])
    try:
        with open(os.path.join(call, f"traceback-{end['rank']}"), encoding="utf-8") as file:
            trace = file.read()
    except OSError:
        trace = ""
    return RankError("\n\n".join(filter(None, (end["message"], trace))), end["rank"], trace, end["exit_code"])


def _load(file):
    with open_own(file) as opened:
        return pickle.load(opened)
