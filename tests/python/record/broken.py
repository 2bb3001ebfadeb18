"""A training of two or three ranks as its user wrote it, which knows nothing of Farandole. With `guest` it also handles signals,
forks children that train or fail, and at last executes another Python that trains."""
import os
import signal
import sys

signals = []
handled = [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
guest = sys.argv[1:] == ["guest"]
if guest:
    for number in handled:
        signal.signal(number, lambda number, _: signals.append(signal.Signals(number).name))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def train(group):
    weight = torch.ones(4, requires_grad=True)
    for step in range(3):
        weight.square().sum().backward()
        if group:
            dist.all_reduce(weight.grad)
            weight.grad /= dist.get_world_size()
        if guest and group:
            os.kill(os.getpid(), handled[step])
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
    return f"{weight.sum().item():.6f}"


def forked(function):
    child = os.fork()
    if child == 0:
        os.close(2)
        function()
        sys.exit(7)  # runs what is registered with atexit
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def train_alone():
    assert train(group=False) == "2.048000"


def fail():
    raise ValueError("the child fails")


def say(*words):
    """In one write, because the ranks share the file."""
    os.write(1, f"rank {os.environ['RANK']}: {' '.join(map(str, words))}\n".encode())


if sys.argv[1:] == ["executed"]:
    say("has executed", train(group=False))
    sys.exit()
ends = [forked(train_alone)] if guest else []  # before torch has threads that a child lacks
dist.init_process_group("gloo")
weights = train(group=True)
dist.barrier()
dist.destroy_process_group()
if guest:
    ends.append(forked(fail))
say("trained", weights, *signals, *ends)
if guest:
    os.execv(sys.executable, [sys.executable, "-W", "ignore", __file__, "executed"])
