"""frameworks.py lightning|hf|accelerate|deepspeed|timm|pyg ACCUMULATE FOLDER: rank 0 prints the framework's own numbers of
steps and of samples in a step, and when its steps ended."""
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


def deepspeed():
    import deepspeed

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = layers()

        def forward(self, images, labels):
            return nn.functional.cross_entropy(self.net(images), labels)

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # It would be compiled, and is for inference.
    deepspeed.init_distributed("gloo")
    model = Model()
    groups = [{"params": [one for one in model.parameters() if one.dim() > 1], "weight_decay": 0.1},
              {"params": [one for one in model.parameters() if one.dim() == 1], "weight_decay": 0.0}]
    config = {"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": accumulate, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": accumulate}}
    engine, _, loader, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups), training_data=data(),
                                                config=config)
    for epoch in range(2):
        engine.train()
        for number, (images, labels) in enumerate(loader):
            loss = engine(images, labels)
            skipped = (epoch, number) == (1, 0)
            engine.backward(loss * float("inf") if skipped else loss)
            engine.step()
            if engine.global_steps > len(ends):
                ends.append(time.perf_counter())
        engine.eval()
        with torch.no_grad():
            for images, labels in DataLoader(data(BATCH * 4), batch_size=BATCH):
                engine(images, labels)
    assert engine.skipped_steps == 1
    report(engine.global_rank, engine.global_steps, engine.train_batch_size())


def timm():
    """As the train.py of timm's repository."""
    import argparse
    import contextlib

    import timm
    from timm import data as images, loss, optim, utils
    from torchvision.datasets import FakeData

    where = argparse.Namespace(device="cpu")
    utils.init_distributed_device(where)
    size = dict(input_size=(3, 32, 32), batch_size=BATCH // 2, use_prefetcher=False, num_workers=0,
                persistent_workers=False, distributed=where.distributed)
    loader = images.create_loader(FakeData(24 * BATCH, (3, 32, 32)), is_training=True, use_multi_epochs_loader=True, **size)
    held = images.create_loader(FakeData(BATCH, (3, 32, 32)), **size)
    model = timm.create_model("test_vit", num_classes=10, img_size=32)
    optimizer = optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    scaler, average, criterion = utils.NativeScaler("cpu"), utils.ModelEmaV3(model), loss.LabelSmoothingCrossEntropy()
    if where.distributed:
        model = nn.parallel.DistributedDataParallel(model)
    for _ in range(2):
        model.train()
        optimizer.zero_grad()
        for number, (inputs, targets) in enumerate(loader, 1):
            update = number % accumulate == 0
            with contextlib.nullcontext() if update or not where.distributed else model.no_sync():
                scaler(criterion(model(inputs), targets) / accumulate, optimizer, clip_grad=1.0, parameters=model.parameters(),
                       need_update=update)
            if update:
                ends.append(time.perf_counter())
                optimizer.zero_grad()
                average.update(model)
        with torch.inference_mode():
            for tested in model, average.module:
                tested.eval()
                for inputs, targets in held:
                    utils.accuracy(tested(inputs), targets)
    report(where.rank, len(ends), loader.batch_size * where.world_size * accumulate)


def pyg():
    """One rank classifies graphs, several classify nodes from samples of their neighbours."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader as GraphLoader, NodeLoader
    from torch_geometric.nn import GCN, global_mean_pool
    from torch_geometric.sampler import BaseSampler, SamplerOutput

    class Neighbors(BaseSampler):  # That of NeighborLoader needs a library that PyPI lacks.
        def __init__(self, graph):
            order = graph.edge_index[1].argsort()
            self.sources = graph.edge_index[0][order]
            self.last = graph.edge_index[1].bincount(minlength=graph.num_nodes).cumsum(0).tolist()

        def sample_from_edges(self, *_, **__):
            raise NotImplementedError

        def sample_from_nodes(self, inputs, **_):
            seeds = inputs.node.tolist()
            into = [self.sources[self.last[node - 1] if node else 0:self.last[node]] for node in seeds]
            nodes = torch.cat([inputs.node, *into])
            targets = torch.arange(len(seeds)).repeat_interleave(torch.tensor([len(one) for one in into]))
            return SamplerOutput(node=nodes, row=torch.arange(len(seeds), len(nodes)), col=targets, edge=None,
                                 metadata=(inputs.input_id, inputs.time))

    def graph(nodes, edges, targets):
        return Data(x=torch.randn(nodes, 64), edge_index=torch.randint(0, nodes, (2, edges)), y=torch.randint(0, 10, (targets,)))

    torch.manual_seed(0)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    model = GCN(64, 256, num_layers=3, out_channels=10)
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        nodes = graph(SIZE, SIZE * 8, SIZE)
        loader = NodeLoader(nodes, Neighbors(nodes), torch.arange(SIZE)[rank::ranks], batch_size=BATCH, shuffle=True,
                            filter_per_worker=False)  # as for graphs on a GPU
        model = nn.parallel.DistributedDataParallel(model)
    else:
        loader = GraphLoader([graph(20, 60, 1) for _ in range(24 * BATCH)], batch_size=BATCH, shuffle=True)
    optimizer, samples = torch.optim.Adam(model.parameters()), 0
    for number, batch in enumerate(loader, 1):
        output = model(batch.x, batch.edge_index)
        if ranks > 1:
            count, output, targets = batch.batch_size, output[:batch.batch_size], batch.y[:batch.batch_size]
        else:
            count, output, targets = batch.num_graphs, global_mean_pool(output, batch.batch), batch.y
        (nn.functional.cross_entropy(output, targets) / accumulate).backward()
        samples += count
        if number % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
    report(rank, len(ends), samples * ranks / len(ends))


if __name__ == "__main__":
    {"lightning": lightning, "hf": hf, "accelerate": accelerate, "deepspeed": deepspeed, "timm": timm, "pyg": pyg}[kind]()
