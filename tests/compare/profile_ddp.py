"""One rank of a small DistributedDataParallel training on Gloo under torch.profiler.

    torchrun --nproc_per_node 2 tests/compare/profile_ddp.py FOLDER [--gz] [--steps 12]

Writes FOLDER/rank_N.pt.trace.json[.gz], as export_chrome_trace does. What is in them is real: distributedInfo,
ProfilerStep#, Gloo's collectives on threads of their own, shapes, flows.
"""
import argparse
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gz", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    net = DistributedDataParallel(net, bucket_cap_mb=0.5)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    samples = TensorDataset(torch.randn(64 * (arguments.steps + 2), 256), torch.randint(0, 10, (64 * (arguments.steps + 2),)))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=1, active=arguments.steps)) as profiler:
        for inputs, labels in DataLoader(samples, batch_size=64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            profiler.step()
    suffix = ".gz" if arguments.gz else ""
    profiler.export_chrome_trace(str(arguments.folder / f"rank_{rank}.pt.trace.json{suffix}"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
