"""Records a program that something else has started: torchrun, srun, mp.spawn, another MPI, or a shell.

A thread of its own loads the library, finds the run directory and begins to record. The program's threads wait for
nothing of this. Whatever fails, the program goes on, and a line says what is not recorded.
"""
import atexit
import ctypes
import json
import os
import socket
import sys
import threading
import time
from queue import SimpleQueue

from torch import distributed

_PATIENCE = 60.0  # seconds that a rank waits for the run directory of rank 0
_AT_EXIT = 0.2
_RUNS = os.path.abspath("farandole-runs")  # before the program changes its folder
# By launcher: the variables with a rank, the number of ranks, and the same on its node.
_PLACES = (("FARANDOLE_RANK", "FARANDOLE_SIZE", "FARANDOLE_LOCAL_RANK", "FARANDOLE_LOCAL_SIZE"),
           ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
           ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
           ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
           ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"))


class Place:
    """Of a rank among the ranks of its job and of its node. `sweep`: the launcher's number of a task that trains alone
    beside others."""

    def __init__(self, rank, size, local_rank=None, local_size=None, sweep=None):
        if local_rank is None or local_size is None or not local_rank < local_size:
            here = size > 1 and os.environ.get("MASTER_ADDR") in ("localhost", "127.0.0.1", "::1")
            local_rank, local_size = (rank, size) if here else (0, 1)
        self.numbers = rank, size, local_rank, local_size
        self.rank, self.size, self.local_rank, self.sweep = rank, size, local_rank, sweep


def _number(name):
    digits = os.environ.get(name, "").partition("(")[0]  # Slurm: 2(x3)
    return int(digits) if digits.isdigit() else None


def _has_joined():
    return distributed.is_available() and distributed.is_initialized()


def find_place():
    """None if the process is going to join others."""
    named, launched = None, [None] * 4
    for names in _PLACES:
        numbers = [_number(name) for name in names]
        if None not in numbers[:2] and numbers[0] < numbers[1]:
            named, launched = names[0], numbers
            break
    if _has_joined():
        rank, size = distributed.get_rank(), distributed.get_world_size()
        return Place(rank, size, *(launched[2:] if launched[:2] == [rank, size] else ()))
    if launched[1] in (None, 1):
        return Place(0, 1)
    if "mpi4py.MPI" in sys.modules or "horovod.torch" in sys.modules:
        return Place(*launched)
    return None if named in ("RANK", "FARANDOLE_RANK") else Place(0, 1, sweep=launched[0])


def _age_of(process):
    """Seconds since the process has started; 0 if that is unknown."""
    try:
        with open(f"/proc/{process}/stat") as stat, open("/proc/uptime") as uptime:
            started = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            return float(uptime.read().split()[0]) - started
    except (OSError, ValueError, IndexError):
        return 0


def choose_folder(place):
    """The run directory, as rank 0 chooses it, and whether it may take another one."""
    if os.environ.get("FARANDOLE_RUN_DIR"):
        return os.path.abspath(os.environ["FARANDOLE_RUN_DIR"]), False
    elastic = "TORCHELASTIC_RUN_ID" in os.environ
    process = os.getppid() if elastic else os.getpid()
    job, step = (os.environ.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    if job:
        task = os.environ.get("SLURM_ARRAY_TASK_ID")
        name = f"{os.environ.get('SLURM_ARRAY_JOB_ID', job)}_{task}" if task else job
        name += f".{step}" if step else f".{process}"
        return os.path.join(_RUNS, name if place.sweep is None else f"{name}.{place.sweep}"), True
    who = f"-{socket.gethostname().partition('.')[0]}-{process}"
    if elastic and os.path.isdir(_RUNS):  # What the agent has started before are earlier starts of this run.
        begin = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() - _age_of(process) - 2))
        earlier = [name for name in os.listdir(_RUNS) if name.endswith(who) and name > begin]
        if earlier:
            return os.path.join(_RUNS, max(earlier)), True
    return os.path.join(_RUNS, time.strftime("%Y%m%d-%H%M%S") + who), True


def _make(folder):
    if not os.path.isdir(folder):
        _make(os.path.dirname(folder))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass


class _Refused(Exception):
    """Rank 0 has said why nothing is recorded."""


class Guest:
    """The recorder of this process, which the main thread asks for."""

    def __init__(self):
        self.thread = None  # once this process is a rank
        self.place = self.store = None
        self.recorder = None  # check, core and quick of _core, once it records
        self.failed = False
        self.invitation = None  # of rank 0, with which the ranks find each other
        self.work = SimpleQueue()  # calls that may wait for files

    def may_begin(self):
        """Begins unless it has begun. False as long as this process is going to join others."""
        if self.thread is None:
            self.place = find_place()
            if self.place is None:
                return False
            if self.place.size > 1 and _has_joined():
                try:
                    default = distributed.distributed_c10d._get_default_store()
                    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")  # torchrun may keep its store.
                    self.store = distributed.PrefixStore(f"farandole {start}", default)
                except (RuntimeError, TypeError, ValueError):  # a backend without one
                    pass
            self.thread = threading.Thread(target=self._run, name="farandole", daemon=True)
            self.thread.start()
            atexit.register(self._close)
        return True

    def later(self, function, *arguments):
        self.work.put((function, arguments))

    def _run(self):
        try:
            self._record()
        except _Refused:
            self.failed = True
        except Exception as error:
            self.failed = True
            self.say(error)
        while True:
            call = self.work.get()
            if call is None:
                return
            call[0](*call[1])

    def _record(self):
        place, problem = self.place, None
        try:
            from farandole._core import check, core, quick
        except ImportError as error:
            problem = error
        try:
            if place.rank:
                folder, other = self._folder_of_rank_0(), False
            else:
                folder, other = choose_folder(place)
                _make(folder)
            if problem:
                raise problem
            result = core.init_guest(*place.numbers, os.fsencode(folder))
            if result and other:  # Another program of this job may record there.
                folder += f".{os.getpid()}"
                _make(folder)
                result = core.init_guest(*place.numbers, os.fsencode(folder))
            check(result)
        except Exception as error:
            self._tell(why=str(error))
            raise
        self.recorder = check, core, quick
        invitation = ctypes.create_string_buffer(4096)
        met = core.meet(self.invitation.encode()) if self.invitation else 0
        if place.rank == 0:
            met = core.invite(invitation, len(invitation))
        if met:
            self.say(quick.error().decode(errors="replace"), "watched")
        self._tell(folder=folder, invitation=invitation.value.decode())

    def _tell(self, **answer):
        if self.store and self.place.rank == 0:
            try:
                self.store.set("run", json.dumps(answer))
            except RuntimeError:  # The program finds out itself what is the matter.
                pass

    def _folder_of_rank_0(self):
        late = time.monotonic() + _PATIENCE
        pause = 0.01
        while True:
            folder = self._answer() if self.store else self._folder_without_store()
            if folder:
                return folder
            if time.monotonic() > late:
                raise TimeoutError("rank 0 does not record; start all ranks with the same environment")
            time.sleep(pause)
            pause = min(0.25, pause * 1.5)

    def _answer(self):
        if not self.store.check(["run"]):  # It does not wait, as get() does.
            return None
        answer = json.loads(self.store.get("run"))
        if "why" in answer:
            raise _Refused(answer["why"])
        self.invitation = answer.get("invitation")
        return answer["folder"]

    def _folder_without_store(self):
        """Known if it has a name that all ranks know. Rank 0 has begun once run.json is younger than the launcher."""
        folder = choose_folder(self.place)[0]
        if not os.environ.get("FARANDOLE_RUN_DIR") and not os.environ.get("SLURM_STEP_ID"):
            raise ValueError("its ranks have no run directory in common; set FARANDOLE_RUN_DIR")
        try:
            age = time.time() - os.stat(os.path.join(folder, "run.json")).st_mtime
        except OSError:
            return None
        return folder if age < _age_of(os.getppid()) + 5 else None

    def say(self, why, what="recorded"):
        who = f"rank {self.place.rank} is not" if self.place.rank else "nothing is"
        print(f"farandole: {who} {what}: {why}", file=sys.stderr, flush=True)

    def _close(self):
        self.work.put(None)
        self.thread.join(_AT_EXIT)
        if self.recorder and not self.thread.is_alive():
            self.recorder[1].close_at_exit()
