"""The PyTorch side of tests/compare/curves.

curves_ddp.py export MODEL BATCHES: writes model.pt, x.npy and y.npy; prints what the fit needs as JSON.
curves_ddp.py train MODEL: one rank of DDP on Gloo, on the rows that farandole fit gives this rank; rank 0 prints {step: loss}.
"""
import json
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_step import Gpt, MnistNet, Mlp


class Digits(nn.Module):
    """MnistNet without dropout."""

    def __init__(self):
        super().__init__()
        net = MnistNet()
        self.conv1, self.conv2, self.fc1, self.fc2 = net.conv1, net.conv2, net.fc1, net.fc2

    def forward(self, x):
        x = torch.relu(torch.max_pool2d(self.conv1(x), 2))
        x = torch.relu(torch.max_pool2d(self.conv2(x), 2))
        return torch.log_softmax(self.fc2(torch.relu(self.fc1(x.flatten(1)))), 1)


class Bytes(nn.Module):
    """Gpt with its classes along dimension 1, where losses expect them."""

    def __init__(self, context):
        super().__init__()
        self.gpt = torch.jit.trace(Gpt(width=64, layers=2, heads=4, context=context), torch.zeros(2, context, dtype=torch.int64))
        self.context = context

    def forward(self, x):
        return self.gpt(x).view(x.shape[0], self.context, 256).transpose(1, 2)


SETTINGS = {"mnist": {"batch": 16, "lr": 0.01, "loss": "nll", "features": "x"},
            "mlp": {"batch": 16, "lr": 0.01, "loss": "cross_entropy", "features": "x"},
            "gpt": {"batch": 4, "lr": 0.05, "loss": "cross_entropy", "features": "x:int64"}}


def export(name, batches):
    torch.manual_seed(1)
    rows = batches * SETTINGS[name]["batch"]
    random = numpy.random.default_rng(1)
    if name == "gpt":
        context = 32
        text = numpy.cumsum(random.integers(1, 4, (rows, context + 1)), axis=1) % 64
        x, y = text[:, :-1].astype("i8"), text[:, 1:].astype("i8")
        model = torch.jit.trace(Bytes(context), torch.zeros(SETTINGS[name]["batch"], context, dtype=torch.int64))
    else:
        shape, classes = ((1, 28, 28), 10) if name == "mnist" else ((128,), 128)
        y = random.integers(0, classes, rows)
        x = (random.standard_normal((classes, *shape))[y] + random.standard_normal((rows, *shape))).astype("f4")
        model = torch.jit.script(Digits()) if name == "mnist" else torch.jit.trace(Mlp(width=128, layers=3), torch.from_numpy(x[:2]))
    numpy.save("x.npy", x)
    numpy.save("y.npy", y)
    model.save("model.pt")
    print(json.dumps(SETTINGS[name]))


def train(name):
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    settings = SETTINGS[name]
    model = DistributedDataParallel(torch.jit.load("model.pt"))
    loss_of = nn.NLLLoss() if settings["loss"] == "nll" else nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"], momentum=0.9)
    x, y = (torch.from_numpy(numpy.load(f"{column}.npy")) for column in "xy")
    own = slice(len(x) * rank // ranks, len(x) * (rank + 1) // ranks)
    losses = {}
    for step, (part, label) in enumerate(zip(x[own].split(settings["batch"]), y[own].split(settings["batch"])), 1):
        optimizer.zero_grad()
        loss = loss_of(model(part), label)
        loss.backward()
        optimizer.step()
        if step == 1 or step % 10 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            losses[step] = mean.item() / ranks
    if rank == 0:
        print(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    export(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "export" else train(sys.argv[2])
