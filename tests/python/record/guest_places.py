"""Where a guest finds its rank and its run directory, by what launchers say. Needs no torch: a stand-in says what it would."""
import os
import re
import subprocess
import sys
import types


class Distributed(types.ModuleType):
    joined = None  # rank and size of the process group

    def is_available(self):
        return True

    def is_initialized(self):
        return self.joined is not None

    def get_rank(self):
        return self.joined[0]

    def get_world_size(self):
        return self.joined[1]


distributed = Distributed("torch.distributed")
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].distributed = distributed
from farandole import _guest, _start  # noqa: E402

for variable in [name for name in os.environ if re.match("FARANDOLE_|SLURM_|OMPI_|PMI", name)]:
    del os.environ[variable]
clean = dict(os.environ)
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
SRUN = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
ARRAY = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "9"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
OWN = r"\d{8}-\d{6}-[\w-]+-" + str(os.getpid())
# What launchers and the process group say, and the numbers and the folder that follow. No numbers: it is going to join others.
CASES = (({}, None, (0, 1, 0, 1), OWN),
         (TORCHRUN, (3, 4), (3, 4, 1, 2), OWN),
         (TORCHRUN, None, None, None),
         (SRUN, (2, 4), (2, 4, 0, 2), r"7\.0"),
         (SRUN, None, (0, 1, 0, 1), r"7\.0\.2"),
         ({**SRUN, **TORCHRUN}, (3, 4), (3, 4, 1, 2), r"7\.0"),
         ({**SRUN, **ARRAY}, (2, 4), (2, 4, 0, 2), r"5_9\.0"),
         ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, None, (0, 1, 0, 1), rf"7\.{os.getpid()}"),
         ({"MASTER_ADDR": "127.0.0.1"}, (1, 2), (1, 2, 1, 2), OWN),
         ({"MASTER_ADDR": "host"}, (1, 2), (1, 2, 0, 1), OWN),
         (MPICH, None, (0, 1, 0, 1), OWN),
         ({**MPICH, "mpi4py.MPI": "imported"}, None, (1, 2, 1, 2), OWN),
         ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, (3, 4), (3, 4, 1, 2), OWN.replace(str(os.getpid()), str(os.getppid()))))
for environment, joined, numbers, folder in CASES:
    os.environ.clear()
    os.environ.update({**clean, **environment})
    sys.modules.pop("mpi4py.MPI", None)
    if "mpi4py.MPI" in environment:
        sys.modules["mpi4py.MPI"] = types.ModuleType("mpi4py.MPI")
    distributed.joined = joined
    place = _guest.find_place()
    assert (place and place.numbers) == numbers, (environment, joined, place and place.numbers)
    if place:
        path, other = _guest.choose_folder(place)
        assert other and re.fullmatch(folder, os.path.relpath(path, _guest._RUNS)), (environment, path)
        os.environ["FARANDOLE_RUN_DIR"] = "mine"
        assert _guest.choose_folder(place) == (os.path.abspath("mine"), False)
# The agent of torchrun that lives has begun this run, and not the one of its number before.
who = OWN.partition("[")[0]
os.environ.clear()
os.environ.update({**clean, **TORCHRUN, "TORCHELASTIC_RUN_ID": "none"})
first = _guest.choose_folder(place)[0]
earlier = os.path.join(_guest._RUNS, "20200101-000000-" + os.path.basename(first).split("-", 2)[2])
for folder in earlier, first:
    os.makedirs(folder)
assert _guest.choose_folder(place)[0] == first
os.rmdir(first)
assert _guest.choose_folder(place)[0] != earlier

# What the environment asks for.
for environment, guest in (({}, False), ({"FARANDOLE_TRACE": "1"}, True), ({"FARANDOLE_TRACE": "0"}, False),
                           ({"FARANDOLE_TRACE": "1", "FARANDOLE_RUN_DIR": "run"}, True), ({"FARANDOLE_RUN_DIR": "run"}, False),
                           ({"FARANDOLE_TRACE": "1", "FARANDOLE_SUPERVISED": "file"}, False)):
    os.environ.clear()
    os.environ.update({**clean, **environment})
    assert _start.is_guest() == guest, environment
os.environ.clear()
os.environ.update({**clean, "FARANDOLE_TRACE": "1", "FARANDOLE": "off"})
import farandole.record  # noqa: E402
assert farandole.record._phases is None

# The file for site-packages, also without the folder of the modules.
start = os.path.join(os.path.dirname(os.path.dirname(_start.__file__)), "start")
for trace, modules, begun in ("1", True, True), ("0", True, False), ("1", False, False):
    site = f"import site, sys; {modules} and sys.path.append({os.path.dirname(start)!r}); site.addsitedir({start!r}); "
    seen = subprocess.run([sys.executable, "-I", "-S", "-c", site + "print('farandole._start' in sys.modules)"],
                          env={**clean, "FARANDOLE_TRACE": trace}, capture_output=True, text=True)
    assert (seen.stdout.strip(), seen.stderr) == (str(begun), ""), seen
