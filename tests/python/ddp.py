"""An ordinary example of DistributedDataParallel: it trains, evaluates after each epoch, and saves."""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 256), torch.randint(0, 10, (512,)))
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
    held_out = DataLoader(data, batch_size=128)
    layers = nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    model = DDP(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            steps += 1
        model.eval()
        with torch.no_grad():
            right = sum((model(images).argmax(1) == labels).sum() for images, labels in held_out)
        model.train()
        dist.all_reduce(right)
        if rank == 0:
            torch.save(model.state_dict(), sys.argv[1])
    dist.barrier()
    if rank == 0:
        print(f"steps {steps}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
