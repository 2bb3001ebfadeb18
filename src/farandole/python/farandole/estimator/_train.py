"""What each rank of TorchEstimator.fit() does."""
import contextlib
import copy
import dataclasses
import inspect
import itertools
import json
import math
import os
import random
import sys
import time

import numpy as np
import torch

from farandole._core import check, core
from farandole.estimator import _predict
from farandole.estimator._rows import Share, Table, loader


@dataclasses.dataclass
class Job:
    """What the driver sends to the ranks. Names as in the table of parameters."""
    table: Table
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    seed: int
    folder: str  # the run directory
    checkpoint: str  # its file; empty: none
    state: dict  # of the run's checkpoint; None at its begin
    labels: list
    features: list
    options: dict  # values of the parameters
    record: dict  # table and options for fit.json


def train(job):
    """Returns on rank 0 the history, and the state dicts of the model and the optimizer."""
    import farandole.torch as hvd
    hvd.init()
    return Training(job, hvd).run()


class Training:
    """`model`, `optimizer`, `history` and `base_rates` are for callbacks."""

    def __init__(self, job, hvd):
        self.job, self.hvd, options = job, hvd, job.options
        self.rank, self.size = hvd.rank(), hvd.size()
        self.device = self._device(options["use_gpu"])
        self.model = job.model.to(self.device)
        state = job.state or {}
        self.history = state.get("history", [])
        optimizer = job.optimizer
        self.base_rates = [group["lr"] * self.size for group in optimizer.param_groups]
        optimizer_state, before = (state["optimizer"], state["ranks"]) if state else (optimizer.state_dict(), 1)
        if state:
            self.model.load_state_dict(state["model"])
        if self.size != before:
            for group in optimizer_state["param_groups"]:
                group["lr"] = group["lr"] / before * self.size
        optimizer.load_state_dict(optimizer_state)
        self.passes = options["backward_passes_per_step"]
        named = {"compression": options["gradient_compression"]} if options["gradient_compression"] else {}
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters(),
                                                  backward_passes_per_step=self.passes, **named)
        self.losses = self._losses(options)
        self.weights = options["loss_weights"] or [1 / len(job.labels)] * len(job.labels)
        self.groups = [list(group) if isinstance(group, (list, tuple)) else [group] for group in options["metrics"]]
        self.names = [[f"group_{number}_{label}" for label in job.labels] for number in range(len(self.groups))]
        self.caches = {validating: {} if options["inmemory_cache_all"] else None for validating in (False, True)}
        self.step = state.get("step", 0)

    def _device(self, wanted):
        """A GPU if each rank has one: all ranks must agree, because their gradients meet in one collective."""
        mine = wanted and torch.cuda.is_available() and self.hvd.local_size() <= torch.cuda.device_count()
        if not self.hvd.allreduce(torch.tensor(float(mine)), op=self.hvd.Min, name="has a GPU").item():
            return torch.device("cpu")
        torch.cuda.set_device(self.hvd.local_rank())
        return torch.device("cuda", self.hvd.local_rank())

    def _losses(self, options):
        losses = options["loss"]
        if options["loss_constructors"]:
            losses = [make(**_known(make, model=self.model, optimizer=self.optimizer, hvd=self.hvd, device=self.device))
                      for make in _listed(options["loss_constructors"])]
        losses = _listed(losses)
        return [loss.to(self.device) if isinstance(loss, torch.nn.Module) else loss
                for loss in (losses * len(self.job.labels) if len(losses) == 1 else losses)]

    # --- One batch

    def _tensors(self, rows):
        inputs = _predict.inputs_of([rows[name] for name in self.job.features], self.job.options["input_shapes"],
                                    self.device)
        labels = [torch.from_numpy(np.ascontiguousarray(rows[name])).to(self.device) for name in self.job.labels]
        column = self.job.options["sample_weight_col"]
        return inputs, labels, None if column is None else torch.from_numpy(rows[column]).to(self.device)

    def _fitting(self, outputs, labels):
        """The outputs as a list, and the labels in their shapes."""
        outputs = _listed(outputs)
        if len(outputs) != len(labels):
            raise ValueError(f"the model has {len(outputs)} outputs for {len(labels)} labels")
        if shapes := self.job.options["label_shapes"]:
            return outputs, [label.reshape(shape) for label, shape in zip(labels, shapes)]
        return outputs, [label.reshape(output.shape) if label.numel() == output.numel() else label
                         for output, label in zip(outputs, labels)]

    def _loss(self, outputs, labels, weights):
        total = 0.
        for output, label, loss, weight in zip(outputs, labels, self.losses, self.weights):
            if weights is None:
                total = total + loss(output, label) * weight
            else:
                of_rows = loss(output, label, reduction="none").reshape(len(weights), -1).mean(1)
                total = total + (of_rows * weights).mean() * weight
        return total

    def _metrics(self, outputs, labels):
        for group in self.groups:
            for function, output, label in zip(group * len(outputs) if len(group) == 1 else group, outputs, labels):
                yield torch.as_tensor(function(output, label), dtype=torch.float64, device=self.device).detach()

    def _sums(self):
        """Of loss and metrics over the rows, and the number of rows."""
        return torch.zeros(2 + sum(map(len, self.names)), dtype=torch.float64, device=self.device)

    def _add(self, sums, loss, outputs, labels, rows):
        with torch.no_grad():
            values = [loss.detach().double(), *self._metrics(outputs, labels)]
            sums[:-1] += torch.stack([value.reshape(()) for value in values]) * rows
            sums[-1] += rows

    def _means(self, sums):
        """Of all ranks, as in Horovod's history."""
        sums = self.hvd.allreduce(sums, op=self.hvd.Sum, name="loss and metrics").cpu()
        loss, *values = (sums[:-1] / sums[-1]).tolist()
        values = iter(values)
        return {"loss": loss, "all_metrics": [{name: next(values) for name in group} for group in self.names]}

    # --- One epoch

    def _share(self, validating, epoch):
        options, named = self.job.options, {}
        batch = validating and options["val_batch_size"] or options["batch_size"]
        if not validating:
            shuffles = options["shuffle"] and options["shuffle_buffer_size"] != 0
            named = {"batches": options["train_steps_per_epoch"], "seed": self.job.seed if shuffles else None}
        return Share(self.job.table, validating, self.rank, self.size, batch, epoch=epoch,
                     window=options["shuffle_buffer_size"], change=options["transformation_fn"],
                     cache=self.caches[validating], **named)

    def _train(self, epoch):
        self.model.train()
        share = self._share(False, epoch)
        sums, own, batches = self._sums(), self.job.options["train_minibatch_fn"], iter(loader(share))
        for begin in range(0, len(share), self.passes):
            numbers = range(begin, min(begin + self.passes, len(share)))
            total = sum(map(share.rows_of, numbers))
            self.optimizer.zero_grad()
            for _ in numbers:
                rows = next(batches)
                if rows is None:
                    continue
                inputs, labels, weights = self._tensors(rows)
                count = len(labels[0])
                factor = count * self.size / total  # of this rank's mean in the mean of all rows
                if own:
                    outputs, loss = own(self.model, self.optimizer, self._fitting,
                                        lambda *arguments: self._loss(*arguments) * factor, inputs, labels, weights)
                    outputs, labels = self._fitting(outputs, labels)
                    loss = loss.detach() / factor
                else:
                    outputs, labels = self._fitting(self.model(*inputs), labels)
                    loss = self._loss(outputs, labels, weights)
                    (loss * factor).backward()
                self._add(sums, loss, outputs, labels, count)
            if rows is None or not own:
                self.optimizer.step()
            self.step += 1
            self._tell_progress(epoch, begin, len(share), sums)
        return self._means(sums)

    def _validate(self, epoch):
        self.model.eval()
        sums = self._sums()
        with torch.no_grad():
            for rows in itertools.islice(loader(self._share(True, epoch)), self.job.options["validation_steps_per_epoch"]):
                if rows is None:
                    break
                inputs, labels, weights = self._tensors(rows)
                outputs, labels = self._fitting(self.model(*inputs), labels)
                self._add(sums, self._loss(outputs, labels, weights), outputs, labels, len(labels[0]))
        return self._means(sums)

    def run(self):
        options, job = self.job.options, self.job
        ended = False
        for epoch in range(len(self.history), options["epochs"]):
            began = time.monotonic()
            for generator in torch.manual_seed, np.random.seed, random.seed:  # the same after a kill
                generator((job.seed + epoch * self.size + self.rank) % 2**32)
            for callback in options["callbacks"]:
                callback.on_epoch_begin(epoch, self)
            entry = {"epoch": epoch, "train": self._train(epoch)}
            if buffers := dict(self.model.named_buffers()):  # for example of batch normalization
                self.hvd.broadcast_parameters(buffers, root_rank=0)
            if sum(job.table.validating):
                entry["validation"] = self._validate(epoch)
            self.history.append(entry)
            ended = any([callback.on_epoch_end(epoch, self) for callback in options["callbacks"]])
            ended = ended or epoch + 1 == options["epochs"]
            if self.rank == 0:
                self._tell(entry, time.monotonic() - began, ended)
            if ended:
                break
        if self.rank == 0:
            return self.history, _on_cpu(self.model.state_dict()), self._unscaled()
        return None

    # --- What rank 0 writes

    def _tell_progress(self, epoch, batch, batches, sums):
        every = max(1, batches // 10)
        if self.rank == 0 and self.job.options["verbose"] > 1 and batch // every != (batch - self.passes) // every:
            print(f"epoch {epoch + 1}, batch {batch + 1} of {batches}: loss {(sums[0] / sums[-1]).item():.6g}", flush=True)

    def _tell(self, entry, seconds, ended):
        epoch = entry["epoch"]
        values = {"loss": entry["train"]["loss"], **_flat(entry["train"])}
        if "validation" in entry:
            values["validation_loss"] = entry["validation"]["loss"]
            values.update((f"validation_{name}", value) for name, value in _flat(entry["validation"]).items())
        if self.job.options["verbose"]:
            text = ", ".join(f"{name.replace('validation_', 'validation ')} {value:.6g}" for name, value in values.items())
            print(f"epoch {epoch + 1} of {self.job.options['epochs']}: {text}, {seconds:.1f} s", flush=True)
        self._save(entry, seconds, ended)
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        check(core.log(self.step, epoch, json.dumps(finite).encode()))

    def _save(self, entry, seconds, ended):
        """The checkpoint, and then what `farandole runs` shows."""
        job, loss, validation = self.job, entry["train"]["loss"], entry.get("validation")
        job.record["finished"] = ended
        job.record["history"].append({
            "epoch": entry["epoch"] + 1, "step": self.step, "loss": loss if math.isfinite(loss) else sys.float_info.max,
            "lr": float(self.optimizer.param_groups[0]["lr"]), "seconds": seconds,
            "training_metrics": _numbers(_flat(entry["train"])), "metrics": _numbers(_flat(validation or {})),
            **(_numbers({"validation_loss": validation["loss"]}) if validation else {})})
        if job.checkpoint:
            state = {"model": _on_cpu(self.model.state_dict()), "optimizer": _on_cpu(self.optimizer.state_dict()),
                     "ranks": self.size, "history": self.history, "step": self.step, "seed": job.seed,
                     "epochs": job.options["epochs"], "finished": ended, "record": job.record}
            with _replacing(job.checkpoint) as file:
                torch.save(state, file)
            write_record(job.folder, job.record)

    def _unscaled(self):
        state = _on_cpu(self.optimizer.state_dict())
        for group in state["param_groups"]:
            group["lr"] = group["lr"] / self.size
        return state


def _listed(one):
    return list(one) if isinstance(one, (list, tuple)) else [one]


def _known(function, **values):
    """Those of the values that the function takes."""
    parameters = inspect.signature(function).parameters
    if any(one.kind == one.VAR_KEYWORD for one in parameters.values()):
        return values
    return {name: value for name, value in values.items() if name in parameters}


def _on_cpu(state):
    if isinstance(state, dict):
        return {name: _on_cpu(value) for name, value in state.items()}
    if isinstance(state, list):
        return [_on_cpu(value) for value in state]
    return state.detach().cpu().clone() if torch.is_tensor(state) else copy.copy(state)


def _flat(part):
    return {name: value for group in part.get("all_metrics", []) for name, value in group.items()}


def _numbers(values):
    """JSON has no NaN and no infinity."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def write_record(folder, record):
    """fit.json, which `farandole runs` reads."""
    with _replacing(os.path.join(folder, "fit.json")) as file:
        file.write(json.dumps(record, indent=2).encode() + b"\n")


@contextlib.contextmanager
def _replacing(path):
    """A file that takes the place of `path` once it is complete and on disk."""
    with open(path + ".new", "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
