"""Programs that something else starts. Rank 1 begins to record later than rank 0.

guest.py job FILE     a rank of torchrun, which meets the others in the file; at the first start, rank 1 ends early
guest.py spawn PORT   two ranks, which this process starts
guest.py ends FOLDER  a process for each way to end and for each thing that may be missing; prints how they ended
"""
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
import torch.nn as nn


def phases():
    """The recorder of this process; None if it is off."""
    record = sys.modules.get("farandole.record")
    return record and record._phases


def train(group=False, each_step=lambda step, recorded: None):
    """Until all ranks have recorded ten steps, if they are recorded at all. Without an optimizer and DDP, because both
    import torch._dynamo, which takes as long as torch itself."""
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    if sys.argv[1] == "spawn":
        model = nn.parallel.DistributedDataParallel(model)
    recorded, step = torch.zeros(1), 0
    while recorded < 10:
        each_step(step, recorded)
        model(torch.ones(32, 64)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        step += 1
        ready = torch.tensor([float(phases() is None or phases().running or phases().guest.failed)])
        if group:
            dist.all_reduce(ready, dist.ReduceOp.MIN)
        recorded += ready


def be_rank(number, size, meeting=None):
    may_begin = threading.Event()
    if number == 1 and phases():
        from farandole import _guest
        begin = _guest.Guest._record
        _guest.Guest._record = lambda self: (may_begin.wait(), begin(self))
    dist.init_process_group("gloo", meeting, rank=number, world_size=size)

    def each_step(step, recorded):
        dist.broadcast(torch.zeros(4), 0)
        if step == 3:
            may_begin.set()
        if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" and recorded == 3 and number == 1:
            sys.exit(3)
    train(True, each_step)
    dist.destroy_process_group()


def start_child(name, run_dir, end, **environment):
    """A forked child, because importing torch takes long."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.environ.update({"FARANDOLE_RUN_DIR": run_dir, **environment})
        train()
        print(name, "has trained", flush=True)
        end()
        sys.exit(0)
    return child


def say_end(name, child):
    print(name, "ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def fail():
    raise ValueError("no batch")


def try_ends(folder):
    hooks = sys.excepthook, signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)

    def show_hooks():
        now = sys.excepthook, signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)
        print("hooks", now == hooks)
    for name, end in (("return", show_hooks), ("exit", lambda: sys.exit(3)), ("exception", fail),
                      ("_exit", lambda: os._exit(4)), ("killed", lambda: os.kill(os.getpid(), signal.SIGKILL)),
                      ("terminated", lambda: os.kill(os.getpid(), signal.SIGTERM)),
                      ("execution", lambda: os.execv(sys.executable, [sys.executable, "-c", "print('executed')"]))):
        say_end(name, start_child(name, os.path.join(folder, name), end))
    say_end("no library", start_child("no library", os.path.join(folder, "none"), fail, FARANDOLE_LIBRARY="/none.so"))
    say_end("no folder", start_child("no folder", "/proc/none", fail))
    # Two programs in one folder at the same time.
    begun, first_ends = os.pipe(), os.pipe()

    def wait():
        os.write(begun[1], b"x")
        os.read(first_ends[0], 1)
    shared = os.path.join(folder, "shared")
    first = start_child("first", shared, wait)
    os.read(begun[0], 1)
    say_end("second", start_child("second", shared, lambda: None))
    os.write(first_ends[1], b"x")
    say_end("first", first)


if __name__ == "__main__":
    if sys.argv[1] == "job":
        # torchrun keeps its store, in which Gloo may find the addresses of the start before.
        start_number = os.environ["TORCHELASTIC_RESTART_COUNT"]
        be_rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), f"file://{sys.argv[2]}-{start_number}")
    elif sys.argv[1] == "spawn":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2])
        torch.multiprocessing.spawn(be_rank, (2,), nprocs=2)
    else:
        try_ends(sys.argv[2])
