"""TorchDistributor of Spark: MNIST on several ranks, evaluated afterwards on the driver. Spark is not needed.

    farandole python torch_distributor.py DATA

DATA has the four files of MNIST, packed or not.
"""
import argparse
import glob
import gzip
import os

import numpy
import torch
from pyspark.ml.torch.distributor import TorchDistributor
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


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


def train_model(dataloader):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data.distributed import DistributedSampler

    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    torch.manual_seed(1)
    model = DistributedDataParallel(Net().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    sampler = DistributedSampler(dataloader.dataset)
    batches = DataLoader(dataloader.dataset, dataloader.batch_size // dist.get_world_size(), sampler=sampler)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")
    dist.destroy_process_group()
    return model.module.cpu()


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("data")
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--samples", type=int, help="fewer of the training samples, for a trial")
    options.add_argument("--save", help="a file for the trained parameters")
    options = options.parse_args()

    dataloader = DataLoader(read_mnist(options.data, "train", options.samples), batch_size=64)
    model = TorchDistributor(num_workers=options.workers).run(train_model, dataloader)

    images, labels = read_mnist(options.data, "t10k", None).tensors
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum().item()
    print(f"accuracy on {len(labels)} test samples: {100 * right / len(labels):.2f} %")
    if options.save:
        torch.save(model.state_dict(), options.save)
