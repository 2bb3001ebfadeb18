"""The recipe of Horovod with HorovodRunner: each rank trains on its part of MNIST, with the gradients of all ranks.

    farandole python horovod_runner.py DATA

DATA has the four files of MNIST, packed or not. --np -1 runs one process, for a trial.
"""
import argparse
import glob
import gzip
import os

import horovod.torch as hvd
import numpy
import torch
from sparkdl import HorovodRunner
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(784, 100)
        self.out = nn.Linear(100, 10)

    def forward(self, images):
        return self.out(torch.tanh(self.hidden(images.flatten(1))))


def read_mnist(folder, part, samples):
    """`part` is train or t10k."""
    def array(kind, header):
        name = glob.glob(os.path.join(folder, f"{part}*-{kind}-ubyte*"))[0]
        with (gzip.open if name.endswith(".gz") else open)(name, "rb") as file:
            return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8, offset=header).copy())

    images = array("images-idx3", 16).reshape(-1, 1, 28, 28)[:samples]
    labels = array("labels-idx1", 8)[:samples]
    return TensorDataset((images / 255 - 0.1307) / 0.3081, labels.long())


def train_hvd(model):
    hvd.init()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
        device = torch.device("cuda", hvd.local_rank())
    dataset = read_mnist(options.data, "train", options.samples)
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    batches = DataLoader(dataset, batch_size=options.batch_size, sampler=sampler)
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
        loss = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}")
    if hvd.rank() == 0:
        torch.save(model.state_dict(), options.save)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("data")
    options.add_argument("--np", type=int, default=2)
    options.add_argument("--epochs", type=int, default=50)
    options.add_argument("--batch-size", type=int, default=64)
    options.add_argument("--rate", type=float, default=0.001)
    options.add_argument("--samples", type=int, help="fewer of the training samples, for a trial")
    options.add_argument("--save", default="horovod_runner.pt", help="a file for the trained parameters")
    options = options.parse_args()
    options.data, options.save = os.path.abspath(options.data), os.path.abspath(options.save)

    torch.manual_seed(1)
    hvd_model = Net()
    HorovodRunner(np=options.np).run(train_hvd, model=hvd_model)

    hvd_model.load_state_dict(torch.load(options.save, map_location="cpu"))
    images, labels = read_mnist(options.data, "t10k", None).tensors
    with torch.no_grad():
        right = (hvd_model(images).argmax(1) == labels).sum().item()
    print(f"accuracy on {len(labels)} test samples: {100 * right / len(labels):.2f} %")
