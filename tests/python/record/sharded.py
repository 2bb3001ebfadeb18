"""A transformer whose parameters are sharded by FSDP2, with a distributed checkpoint."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group(os.environ.get("BACKEND", "gloo"))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
layers = [torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(3)]
model = torch.nn.Sequential(torch.nn.Embedding(1000, 128), *layers, torch.nn.Linear(128, 1000))
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
steps = 0
for _ in range(6):
    tokens = torch.randint(0, 1000, (8, 65))
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    steps += 1
dcp.save({"model": model.state_dict()}, checkpoint_id=sys.argv[1])
pairs = dist.new_group([0, 1])
total = torch.tensor([1.0])
dist.all_reduce(total, group=pairs)
assert total.item() == 2
if dist.get_rank() == 0:
    print(f"steps {steps}")
dist.destroy_process_group()
