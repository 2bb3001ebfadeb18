"""Trains as people do on GPUs with little memory, under torchrun: gradient accumulation, mixed precision, snapshots.

Usage: accumulate.py EPOCHS [--accumulate N] [--snapshot FILE]
"""
import argparse
import contextlib
import os

import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class RandomDataset(Dataset):
    def __init__(self, size):
        self.data = [(torch.rand(256), torch.rand(8)) for _ in range(size)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    def __init__(self, model, loader, optimizer, accumulate, snapshot):
        self.rank = int(os.environ["RANK"])
        self.loader, self.optimizer, self.accumulate, self.snapshot = loader, optimizer, accumulate, snapshot
        self.first_epoch = 0
        if os.path.exists(snapshot):
            saved = torch.load(snapshot)
            model.load_state_dict(saved["model"])
            self.first_epoch = saved["epoch"]
        self.model = DDP(model)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # too large: the first steps are left out
        self.steps = 0

    def run_batch(self, index, source, targets):
        last = (index + 1) % self.accumulate == 0
        with contextlib.nullcontext() if last else self.model.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.mse_loss(self.model(source), targets) / self.accumulate
            self.scaler.scale(loss * (float("inf") if self.steps == 1 else 1)).backward()
        if not last:
            return
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1

    def train(self, epochs):
        for epoch in range(self.first_epoch, epochs):
            self.loader.sampler.set_epoch(epoch)
            for index, (source, targets) in enumerate(self.loader):
                self.run_batch(index, source, targets)
            if self.rank == 0:
                torch.save({"model": self.model.module.state_dict(), "epoch": epoch + 1}, self.snapshot)
        if self.rank == 0:
            print(f"steps {self.steps}, scale {self.scaler.get_scale()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--snapshot", default="snapshot.pt")
    options = parser.parse_args()
    init_process_group(backend="gloo")
    torch.manual_seed(int(os.environ["LOCAL_RANK"]))
    dataset = RandomDataset(512)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 8))
    loader = DataLoader(dataset, batch_size=32, shuffle=False, sampler=DistributedSampler(dataset))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    Trainer(model, loader, optimizer, options.accumulate, options.snapshot).train(options.epochs)
    destroy_process_group()


if __name__ == "__main__":
    main()
