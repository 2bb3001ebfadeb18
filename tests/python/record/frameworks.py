"""frameworks.py lightning|hf|accelerate ACCUMULATE FOLDER: rank 0 prints the framework's own numbers of steps and of samples in a
step, and when its steps ended."""
import os
import sys
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

os.environ["HF_HUB_OFFLINE"] = "1"
BATCH, WIDTH, SIZE = 128, 1024, 128 * 96
kind, accumulate, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ends = []  # of steps


def layers():
    return nn.Sequential(nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def data(size=SIZE):
    torch.manual_seed(0)
    return TensorDataset(torch.randn(size, 256), torch.randint(0, 10, (size,)))


def report(rank, steps, samples):
    if rank == 0:
        print(f"steps {steps}")
        print(f"batch {samples}")
        print("ends", *ends)


def lightning():
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = layers()

        def forward(self, images):
            return self.net(images)

        def training_step(self, batch, _):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, _):
            self.log("validation", nn.functional.cross_entropy(self(batch[0]), batch[1]), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Clock(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step > len(ends):
                ends.append(time.perf_counter())

    ranks = int(os.environ["WORLD_SIZE"])
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto",
                                accumulate_grad_batches=accumulate, enable_progress_bar=False, logger=False,
                                callbacks=[Clock()], default_root_dir=folder)
    trainer.fit(Model(), DataLoader(data(), batch_size=BATCH), DataLoader(data(BATCH * 4), batch_size=BATCH))
    report(trainer.global_rank, trainer.global_step, BATCH * trainer.world_size * trainer.accumulate_grad_batches)


def hf():
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = layers()

        def forward(self, images, labels):
            logits = self.net(images)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    rows = [{"images": images, "labels": label} for images, label in data()]
    arguments = TrainingArguments(output_dir=folder, num_train_epochs=1, per_device_train_batch_size=BATCH, use_cpu=True,
                                  gradient_accumulation_steps=accumulate, eval_strategy="epoch", save_strategy="no",
                                  report_to=[], disable_tqdm=True, per_device_eval_batch_size=BATCH)
    trainer = Trainer(model=Model(), args=arguments, train_dataset=rows, eval_dataset=rows[:BATCH * 4], callbacks=[Clock()])
    trainer.train()
    samples = arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps
    report(arguments.process_index, trainer.state.global_step, samples)


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model = layers()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters()), DataLoader(data(), batch_size=BATCH))
    for images, labels in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            ends.append(time.perf_counter())
    samples = loader.total_batch_size * accelerator.gradient_accumulation_steps
    report(accelerator.process_index, len(ends), samples)
    accelerator.end_training()


if __name__ == "__main__":
    {"lightning": lightning, "hf": hf, "accelerate": accelerate}[kind]()
