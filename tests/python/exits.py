"""A rank without PyTorch that ends as the argument says: in the middle of collectives, or after them."""
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
case = sys.argv[1]
if case == "hook":
    sys.excepthook = lambda kind, *_: print("my hook got", kind.__name__, file=sys.stderr, flush=True)
if case == "mpi-first":
    mpi.MPI_Init_thread(None, None, 3, ctypes.byref(ctypes.c_int()))

from farandole import _exits  # noqa: E402
from farandole._core import check, core, quick  # noqa: E402

check(core.init())
_exits.install()
rank, last = quick.rank(), quick.size() - 1
group = ctypes.c_void_p()
check(core.group(None, 0, ctypes.byref(group)))


def barrier():
    check(core.barrier(group, b"meeting", None))


def fail():
    raise ValueError("the batch has no samples")


ends = {
    "exit": lambda: sys.exit(3),
    "text": lambda: sys.exit("no such model"),
    "exception": fail,
    "hook": fail,
    "_exit": lambda: os._exit(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crash": lambda: ctypes.string_at(0),
    "terminated": lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(20)),
    "interrupted": lambda: os.kill(os.getpid(), signal.SIGINT),
}
barrier()
if case in ends:
    if rank == last:
        ends[case]()
    barrier()
elif case == "all":  # All ranks fail, and one of them says so.
    barrier()
    sys.exit(3)
elif case == "stop":  # After SIGTERM to the launcher, as a script that asks farandole.record.stopping().
    print("begun", flush=True)
    stops = ctypes.c_int()
    while not stops.value:
        check(core.agree(quick.stop_requested(), ctypes.byref(stops)))
        time.sleep(0.01)
    raise SystemExit(75)
else:
    child = os.fork()
    if child == 0:
        sys.exit(9)  # runs what is registered with atexit
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 9
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        fail()  # calls the hook for exceptions
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 1
    spawned = "import os; assert os.environ['FARANDOLE_RANK_PROCESS'] != str(os.getpid())"
    subprocess.run([sys.executable, "-c", spawned], check=True)
    thread = threading.Thread(target=fail)  # Python goes on without it.
    thread.start()
    thread.join()
    barrier()
    if case == "mpi-first":
        check(core.close())
        mpi.MPI_Finalize()
print(f"rank {rank} is done", flush=True)
