"""The same DDP training for each launcher: launchers.py plain | accelerate | lightning | deepspeed | mpi. Prints the ranks."""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

if sys.argv[1] == "lightning":
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(64, 10)

        def training_step(self, batch, _):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def on_train_end(self):
            print(f"rank {self.global_rank} has trained", flush=True)

STEPS = 500


def train(model, optimizer, batches, backward=lambda loss: loss.backward()):
    for (batch,) in batches:
        optimizer.zero_grad()
        backward(model(batch).square().mean())
        optimizer.step()


def main(how):
    torch.manual_seed(0)
    net, data = nn.Linear(64, 10), TensorDataset(torch.randn(2 * STEPS * 16, 64))
    if how == "accelerate":
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        model, optimizer, batches = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), DataLoader(data, 16))
        train(model, optimizer, batches, accelerator.backward)
    elif how == "lightning":
        trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=sys.argv[2], max_epochs=1, logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False)
        return trainer.fit(Module(), DataLoader(data, 16))
    else:
        if how == "mpi":  # The process group's rank comes from the launcher.
            rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
            dist.init_process_group("gloo", f"file://{sys.argv[2]}", rank=rank, world_size=size)
        elif how == "deepspeed":
            import deepspeed
            deepspeed.init_distributed("gloo")
        else:
            dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(net)
        own = TensorDataset(data.tensors[0][dist.get_rank()::2])
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(own, 16))
    print(f"rank {dist.get_rank() if dist.is_initialized() else 0} has trained", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
