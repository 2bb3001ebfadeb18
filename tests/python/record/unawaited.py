"""A rank ends while the other one is in a collective: at-end|early|alone|no-place. At the end, rank 0 does, because rank 1 comes
later. Early, rank 1 ends instead of training."""
import os
import sys
import time

import torch
import torch.distributed as dist

case = sys.argv[1]
if case == "alone" and os.environ["RANK"] == "0":
    from farandole import _phases
    _phases._SOON = 2
dist.init_process_group("gloo")
if case == "early" and dist.get_rank() == 1:
    sys.exit(0)
for _ in range(20):
    dist.all_reduce(torch.ones(4), async_op=True).wait()
if dist.get_rank() == 1:
    time.sleep(0.5)
dist.all_reduce(torch.ones(4), async_op=case == "at-end")
if case != "at-end":
    dist.destroy_process_group()
