"""Rank 0 ends while a collective that it has started is in flight, because rank 1 comes later."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(4), async_op=True).wait()
if dist.get_rank() == 1:
    time.sleep(0.5)
dist.all_reduce(torch.ones(4), async_op=True)
