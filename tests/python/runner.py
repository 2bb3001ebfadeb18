"""Drivers: functions on ranks, their values and failures, and the names of Horovod and Spark. The argument says
which of them."""
import contextlib
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from farandole import RankError, _runner
from farandole._worker import open_own

here = os.path.dirname(os.path.abspath(__file__))


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def call(function, *arguments, ranks=2, **options):
    return _runner.run(function, arguments, ranks=ranks, trace=False, **options)


@contextlib.contextmanager
def there(folder):
    """contextlib.chdir(), which Python 3.10 lacks."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def raised(kind, function, *arguments, **options):
    """The exception, and what the driver has printed meanwhile."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            call(function, *arguments, **options)
        except kind as error:
            return error, out.getvalue() + err.getvalue()
    raise AssertionError(f"{function} has raised nothing")


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


def rank():
    return int(os.environ["RANK"])


def values():
    base = 10

    def nested(pair, *, scale):
        import decimal

        import runner  # from the folder of the script
        return Pair(runner.rank() * scale + base + pair.first, decimal.Decimal(2))

    got = _runner.run(nested, (Pair(1, 2),), {"scale": 100}, 3, trace=False)
    check([type(value) is Pair and (value.first, int(value.second)) for value in got] == [(11, 2), (111, 2), (211, 2)],
          "a nested function with an object of a class of __main__")
    large = os.urandom(1) * (64 << 20)
    with tempfile.TemporaryDirectory() as folder, there(folder):
        for name in "json", "pickle", "socket", "cloudpickle":
            write(folder, f"{name}.py", "raise SystemExit('a module that another user left in the current folder')")
        got = call(lambda data: (len(data), data[-1:]), large)
    check(got == [(len(large), large[:1])] * 2, "a large argument")
    got = []
    threads = [threading.Thread(target=lambda: got.append(call(rank, values="first"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(got == [[0, None]] * 2, f"two runs at a time, with only the value of rank 0: {got}")
    runs = sorted(os.listdir(os.environ["FARANDOLE_RUNS"]))
    check(len(runs) == 4, f"a run directory for each run: {runs}")
    check(not [name for run in runs for name in os.listdir(os.path.join(os.environ["FARANDOLE_RUNS"], run))
               if name.startswith("call-")], "no payload is left")

    def speaks():
        print(f"out {rank()} ü", flush=True)
        print(f"err {rank()}", file=sys.stderr)
        check(rank.__globals__["__name__"] == "__main__", "its globals")
        check(type(pickle.loads(pickle.dumps(Pair(1, 2)))) is Pair, "torch.save() finds a class of __main__")
        return os.environ["COLOUR"], sys.argv

    with tempfile.TemporaryDirectory() as folder:
        out, err = io.StringIO(), os.path.join(folder, "err")
        got = call(speaks, stdout=out, stderr=err, timestamps=True, environment={"COLOUR": "red"})
        check(got == [("red", ["-c"])] * 2, f"variables of the ranks: {got}")
        check(sorted(line.split()[0] + line.split("] ")[1] for line in out.getvalue().splitlines()) ==
              ["[0out 0 ü", "[1out 1 ü"], out.getvalue())
        with open(err) as file:
            check(sorted(line.split("] ")[1] for line in file) == ["err 0\n", "err 1\n"], "a path for stderr")
        # Sinks of Jupyter, where sys.stdout is not file descriptor 1, and a file of bytes.
        out, err = io.StringIO(), io.BytesIO()
        with contextlib.redirect_stdout(out):
            call(speaks, stderr=err, environment={"COLOUR": ""}, run_dir=os.path.join(folder, "run"))
        check(sorted(out.getvalue().split("\n")) == ["", "out 0 ü", "out 1 ü"], out.getvalue())
        check(sorted(err.getvalue().split(b"\n")) == [b"", b"err 0", b"err 1"], err.getvalue())
        check(os.path.isdir(os.path.join(folder, "run", "launch")), "the run directory that was named")


def others():
    """What other users may have left is not executed."""
    runs = os.environ["FARANDOLE_RUNS"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FARANDOLE_RUNS"] = folder
        for mode, owner in (0o777, os.getuid()), (0o700, 65534):
            os.chmod(folder, mode)
            if os.getuid() == 0:
                os.chown(folder, owner, -1)
            try:
                _runner.run(rank)
            except RuntimeError as error:
                check("FARANDOLE_RUNS" in str(error), error)
            else:
                check(os.getuid() != 0 and mode != 0o777, f"a run in a folder of mode {mode:o} of user {owner}")
        os.environ["FARANDOLE_RUNS"] = runs
        value = write(folder, "value-0", "")
        open_own(value).close()
        if os.getuid() == 0:
            os.chown(value, 65534, -1)
            try:
                open_own(value)
            except RuntimeError as error:
                check("another user" in str(error), error)
            else:
                raise AssertionError("a file of another user was opened")
    with tempfile.TemporaryDirectory() as folder:
        package = shutil.copytree(os.path.dirname(_runner.__file__), os.path.join(folder, "a/b/c/d/e/farandole"))
        os.makedirs(os.path.join(folder, "bin"))
        os.chmod(write(os.path.join(folder, "bin"), "farandole", ""), 0o755)
        found = subprocess.run([sys.executable, "-c", "from farandole import _runner; print(_runner.find_program())"],
                               env={"PYTHONPATH": os.path.dirname(package), "PATH": "/usr/bin:/bin"}, text=True,
                               cwd=os.path.dirname(package).removesuffix("/b/c/d/e"), capture_output=True)
        check(found.returncode == 1 and "add its folder to PATH" in found.stderr, found)


def failures():
    def one_fails(how):
        def fail():
            if rank() == 1:
                how()
            time.sleep(600)
        return raised(RankError, fail)

    def raises():
        raise KeyError("no such column")

    error, printed = one_fails(raises)
    check((error.rank, error.code) == (1, 1), (error.rank, error.code))
    check(str(error).startswith("rank 1 on ") and "KeyError: 'no such column'" in str(error), error)
    check(error.traceback.startswith("Traceback") and 'raise KeyError("no such column")' in error.traceback and
          f'"{os.path.abspath(__file__)}", line ' in error.traceback, error.traceback)
    check("_worker" not in str(error) and "farandole run" not in str(error), f"{error}\n{printed}")
    for argument, code, text in (3, 3, "sys.exit(3)"), ("no model", 1, "sys.exit('no model')"):
        error, printed = one_fails(lambda: sys.exit(argument))
        check((error.rank, error.code, error.traceback) == (1, code, ""), (vars(error), printed))
        check(text in str(error), error)
    error, printed = one_fails(lambda: os.kill(os.getpid(), signal.SIGKILL))
    check((error.rank, error.code) == (1, 137), (vars(error), printed))
    check("killed by signal 9" in str(error) and "farandole doctor " in str(error), error)

    error, _ = raised(RankError, lambda: os._exit(0) if rank() == 1 else None)
    check(error.rank == 1 and "os._exit(0)" in str(error), error)
    error, _ = raised(RankError, threading.Lock)
    check("cannot be sent to the driver" in str(error) and "can be pickled" in str(error), error)
    error, _ = raised(RankError, lambda: call(rank))
    check("is a rank already" in str(error) and "farandole python" in str(error), error)
    check(call(lambda: sys.exit(0)) == [None, None], "sys.exit(0) is a success")

    def loses_the_payload():
        import shutil
        if rank() == 1:
            shutil.rmtree(os.path.dirname(sys.orig_argv[-2] + "/"))
            raise ValueError("no folder")
        time.sleep(600)

    error, printed = raised(RankError, loses_the_payload)
    check(error.rank == 1 and "ValueError: no folder" in printed, f"{error}\n{printed}")
    again = pickle.loads(pickle.dumps(error))
    check((str(again), again.rank, again.code) == (str(error), 1, 1), again)

    error, _ = raised(RuntimeError, rank, environment={"PATH": "/nonexistent", "SLURM_JOB_ID": "1"})
    check(not isinstance(error, RankError) and "srun is not in PATH" in str(error), error)
    error, _ = raised(RuntimeError, rank, run_dir=os.path.join(os.path.abspath(__file__), "run"))
    check("cannot be made" in str(error) and "FARANDOLE_RUNS" in str(error), error)
    error, _ = raised(ValueError, rank, ranks=0)
    check("1 or more" in str(error), error)


def sleep(folder, how):
    """A driver whose ranks leave their process ids in the folder and do not end by themselves."""
    if how == "stubborn":
        _runner._PATIENCE = 0.5  # before the next signal

    def wait():
        if how == "stubborn":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if how == "saves":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
        for pid in os.getpid(), os.getppid():
            open(os.path.join(folder, str(pid)), "w").close()
        open(os.path.join(folder, f"ready {rank()}"), "w").close()
        time.sleep(600)

    call(wait, run_dir=os.path.join(folder, "run"))


def interrupted():
    def alive(pid):
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def until(holds, what):
        limit = time.monotonic() + 120
        while not holds():
            check(time.monotonic() < limit, what)
            time.sleep(0.05)

    cases = [("", signal.SIGINT, -signal.SIGINT), ("", signal.SIGTERM, 143), ("saves", signal.SIGTERM, 75),
             ("", signal.SIGKILL, -signal.SIGKILL), ("stubborn", signal.SIGINT, -signal.SIGINT)]
    for how, number, code in cases:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "said"), "w+") as said:
                driver = subprocess.Popen([sys.executable, __file__, "sleep", folder, how], stderr=said)
                until(lambda: sum(name.startswith("ready") for name in os.listdir(folder)) == 2 or
                      driver.poll() is not None, "the ranks start")
                check(driver.poll() is None, "the driver runs")
                pids = [int(name) for name in os.listdir(folder) if name.isdigit()]
                driver.send_signal(number)
                check(driver.wait(120) == code, f"{driver.returncode}, not {code}")
                if number == signal.SIGKILL:  # Nobody waits for them.
                    until(lambda: not any(map(alive, pids)), f"no process is left of {pids}")
                    until(lambda: os.listdir(os.path.join(folder, "run")) == ["launch"] or
                          not [name for name in os.listdir(os.path.join(folder, "run")) if name.startswith("call")],
                          "no payload is left")
                check(not any(map(alive, pids)), f"no process is left of {pids} after {number}")
                said.seek(0)
                text = said.read()
                check(text.count("Traceback") == (number == signal.SIGINT), text)
                check(all("interrupted" in line for line in text.splitlines() if line.startswith("farandole: ")), text)


def names(folder):
    """Without Horovod and Spark, and then with packages of these names in the folder."""
    def imports(code, *path, ours="1"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONPATH": ":".join([os.environ["PYTHONPATH"], *path]),
                                   "FARANDOLE_HOROVOD": ours})
        check(done.returncode == 0, done.stderr)
        return done.stdout, done.stderr

    ours = """
import horovod, horovod.runner, horovod.spark, horovod.spark.common.backend, sparkdl, sparkdl.horovod
from pyspark.ml.torch.distributor import TorchDistributor
from farandole import runners
assert "torch" not in __import__("sys").modules
assert horovod.run is horovod.runner.run is runners.run and horovod.spark.run is runners.spark_run
assert horovod.spark.common.backend.SparkBackend is runners.SparkBackend
assert horovod.__version__ and sparkdl.HorovodRunner is runners.HorovodRunner
assert TorchDistributor is runners.TorchDistributor
for name, remedy in {"tensorflow.keras": "use horovod.torch", "elastic": "--max-restarts", "ray": "sbatch",
                     "torch.elastic": "--max-restarts", "spark.lightning": "TorchEstimator",
                     "mxnet": "horovod.torch"}.items():
    try:
        __import__("horovod." + name)
    except ImportError as error:
        assert remedy in str(error) and "is not part of Farandole" in str(error), error
    else:
        raise AssertionError(name)
try:
    horovod.spark.run_elastic(print)
except RuntimeError as error:
    assert "--max-restarts" in str(error)
"""
    check(imports(ours) == ("", ""), "nothing is said")
    for name in "horovod", "sparkdl", "pyspark/ml/torch":
        os.makedirs(os.path.join(folder, name))
    for name, text in {"horovod": "print('the real one')", "sparkdl": "", "pyspark": "real = 1", "pyspark/ml": "",
                       "pyspark/ml/torch": ""}.items():
        with open(os.path.join(folder, name, "__init__.py"), "w") as file:
            file.write(text)
    with open(os.path.join(folder, "pyspark/ml/torch/distributor.py"), "w") as file:
        file.write("class TorchDistributor: pass\nother = 1\n")
    out, err = imports(ours + "import pyspark, pyspark.ml.torch.distributor as d\n"
                       "assert pyspark.real and d.other", folder)
    check(not out and err.count("\n") == 2 and f"not the one in {folder}/horovod; to use that one" in err, err)
    out, err = imports("import horovod; from pyspark.ml.torch.distributor import TorchDistributor as real\n"
                       "assert not hasattr(real, 'run')", folder, ours="")
    check(out == "the real one\n" and not err, out + err)


def trains():
    """With torch: the runners, and a rank that fails while others wait for it."""
    import warnings

    import horovod
    import torch
    from horovod.spark.common.backend import SparkBackend
    from pyspark.ml.torch.distributor import TorchDistributor
    from sparkdl import HorovodRunner

    global Net

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 1)

    Net.__qualname__ = "Net"

    def average(model, file):
        import horovod.torch as hvd
        hvd.init()
        if hvd.rank() == 0:
            torch.save(model, file)
        return hvd.size(), hvd.allreduce(torch.tensor([float(hvd.rank())])).item()

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.pt")
        check(HorovodRunner(np=-2).run(average, model=Net(), file=file) == (2, 0.5), "HorovodRunner")
        check(type(torch.load(file, weights_only=False)) is Net, "a model that a rank has saved")
        script = os.path.join(folder, "script.py")
        with open(script, "w") as written:
            written.write("import os, sys\nif __name__ == '__main__' and os.environ['RANK'] == '1':\n"
                          "    open(sys.argv[1], 'w').write(' '.join(sys.argv[1:]))\n")
        file = os.path.join(folder, "arguments")
        check(TorchDistributor(2, use_gpu=False).run(script, file, 3) is None, "a script")
        with open(file) as written:
            check(written.read() == f"{file} 3", "the arguments of a script")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        check(horovod.run(lambda x: x + rank(), (1,), np=2, hosts="localhost:2", use_gloo=True) == [1, 2],
              "horovod.run")
        check(horovod.run(lambda: 5, hosts="one:2,two:2") == [5], "horovod.run")
    told = [warning for warning in told if warning.category is UserWarning]
    check(len(told) == 1 and "salloc" in str(told[0].message) and told[0].filename == __file__, told)
    backend = SparkBackend(num_proc=2, env={"A": "1"}, stdout=sys.stdout, verbose=1)
    check(backend.run(lambda: os.environ["A"] + os.environ["B"], env={"B": "2"}) == ["12", "12"], "SparkBackend")
    check(backend.num_processes() == 2, "num_processes()")
    for wrong in (lambda: HorovodRunner(np=0), lambda: TorchDistributor(num_workers=0),
                  lambda: TorchDistributor(2, num_workers=2), lambda: TorchDistributor().run(here, epochs=1)):
        try:
            wrong()
        except ValueError:
            continue
        raise AssertionError("a wrong argument")

    def gloo(how):
        torch.distributed.init_process_group("gloo")
        if rank() == 1:
            how()
        torch.distributed.barrier()

    def raises():
        raise KeyError("no such column")

    for how, code in (raises, 1), (lambda: os.kill(os.getpid(), signal.SIGKILL), 137):
        try:
            TorchDistributor(num_workers=2).run(gloo, how)
        except RankError as error:
            check((error.rank, error.code) == (1, code), error)
        else:
            raise AssertionError("it has ended well")


if __name__ == "__main__":
    parts = values, others, failures, sleep, interrupted, names, trains
    {function.__name__: function for function in parts}[sys.argv[1]](*sys.argv[2:])
