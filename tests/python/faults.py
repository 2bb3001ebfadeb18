"""Training on three ranks in which something goes wrong: BACKEND FOLDER FAULT..., one fault after the other.

A rank that is stuck goes on when the test writes to FOLDER/gate.
"""
import ctypes
import os
import signal
import sys
import threading
import time

import farandole.record  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

backend, folder, *faults = sys.argv[1:]
if backend == "farandole":
    import farandole.torch_backend  # noqa: F401
GATE = os.path.join(folder, "gate")
STEPS = 12  # with each fault
fault = None  # of this rank, in this step


def stuck_in_lock():
    lock = threading.Lock()
    lock.acquire()

    def wait_for_gate():
        open(GATE).close()
        lock.release()

    threading.Thread(target=wait_for_gate, daemon=True).start()
    lock.acquire()  # waits for the gate


def stuck_with_gil():
    libc = ctypes.PyDLL(None)
    libc.close(libc.open(GATE.encode(), os.O_RDONLY))


class Samples(Dataset):
    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        if fault == "lock" and index % 4 == 0:  # once in a batch
            stuck_in_lock()
        if fault == "slow-data":
            time.sleep(0.01)
        return torch.ones(16)


def hook(gradient):
    if fault == "gil":
        stuck_with_gil()
    if fault == "slow-backward":
        time.sleep(0.04)
    return gradient


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))

    def forward(self, batch):
        if fault == "exception":
            raise ValueError("the batch has no samples")
        if fault == "uneven":  # One rank gets far more samples.
            batch = batch.repeat(20000, 1)
        hidden = self.layers(batch)
        hidden.register_hook(hook)
        return hidden.square().mean()


def main():
    global fault
    dist.init_process_group(backend)
    rank = dist.get_rank()
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    batches = iter(DataLoader(Samples(), batch_size=4))
    for name in faults:
        of_rank, _, name = name.partition(":")
        for step in range(STEPS):
            slow = name in ("slow-data", "slow-backward", "uneven")
            fault = name if rank == int(of_rank) and (slow or step == 1) else None
            net(next(batches)).backward()
            if fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            optimizer.zero_grad()
            if name == "mismatch" and step == 1:
                value = torch.ones(8)
                dist.broadcast(value, 0) if rank == int(of_rank) else dist.all_reduce(value)
    dist.destroy_process_group()


main()
