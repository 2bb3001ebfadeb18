"""Each rank trains on its part of MNIST alone. At the end of each epoch, the ranks average their weights.

    farandole run -n 4 --horovod -- python3 averaged_weights.py DATA

DATA has the files of MNIST, packed or not.
"""
import argparse
import glob
import gzip
import os

import horovod.torch as hvd
import numpy
import torch
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


def average_weights(model):
    averaged = {name: hvd.allreduce(value, name=name) for name, value in model.state_dict().items()}
    model.load_state_dict(averaged)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, help="fewer of the training samples, for a trial")
    parser.add_argument("--save", default="averaged_weights.pt", help="a file for the trained parameters")
    options = parser.parse_args()

    hvd.init()
    device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    dataset = read_mnist(options.data, "train", options.samples)
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    batches = DataLoader(dataset, batch_size=32, sampler=sampler)
    torch.manual_seed(1)
    model = Net().to(device)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
        average_weights(model)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

    images, labels = (tensor.to(device) for tensor in read_mnist(options.data, "t10k", None).tensors)
    mine = slice(hvd.rank(), None, hvd.size())
    with torch.no_grad():
        right = (model(images[mine]).argmax(1) == labels[mine]).sum()
    right = hvd.allreduce(right, op=hvd.Sum, name="right").item()
    if hvd.rank() == 0:
        print(f"accuracy on {len(labels)} test samples: {100 * right / len(labels):.2f} %")
        torch.save(model.state_dict(), options.save)


if __name__ == "__main__":
    main()
