"""An ordinary program of PyTorch's DistributedDataParallel, as torchrun starts it: it knows nothing of Farandole.

Each rank trains on its own samples, and checks that all ranks have the parameters that training on all samples gives.
"""
import os
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")  # reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
rank, size = dist.get_rank(), dist.get_world_size()
local = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])

torch.manual_seed(7)
samples, targets = torch.randn(size, 4, 3), torch.randn(size, 4, 1)
model, alone = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
alone.load_state_dict(model.state_dict())
parallel = DistributedDataParallel(model)
for net, x, y in ((parallel, samples[rank], targets[rank]), (alone, samples.flatten(0, 1), targets.flatten(0, 1))):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
assert torch.allclose(model.weight, alone.weight, atol=1e-5), (model.weight, alone.weight)
for r in range(size):
    if r == rank:
        print(f"rank {rank} of {size}, {local[0]} of {local[1]} on {socket.gethostname()}", flush=True)
    dist.barrier()
dist.destroy_process_group()
