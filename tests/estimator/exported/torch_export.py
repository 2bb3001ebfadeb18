#!/usr/bin/env python3
"""Exports the models of exported_nets.py, and trains them in PyTorch.

torch_export.py export: writes NAME.pt2 (for training), NAME-eval.pt2, NAME.h5 and NAME.options for each model, and files that
farandole fit refuses.
torch_export.py compare: compares runs/NAME-1 and, of some models, runs/NAME-2, trained on 1 and 2 ranks, and runs/NAME-again, which trains the
result of runs/NAME-1, with PyTorch."""
import json
import os
import sys

import exported_nets as nets
import h5py
import numpy
import torch
from torch.export.pt2_archive._package import load_pt2, package_pt2

ROWS, TRAINED, BATCH, EPOCHS = 60, 50, 32, 3  # Each epoch has 2 steps, the last of 18 rows.
RATE, MOMENTUM = 2**-4, 0.5  # Products with them are exact, so that fused and separate products and sums agree.


def write(path, columns):
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[name] = values


def export():
    for name in nets.CASES:
        net, inputs = nets.net(name), nets.example(name)
        programs = {mode: nets.export(net.train(mode == "train"), inputs) for mode in ("train", "eval")}
        torch.export.save(programs["train"], f"{name}.pt2")
        torch.export.save(programs["eval"], f"{name}-eval.pt2")
        if name == "cnn":
            package_pt2("both.pt2", exported_programs=programs)
        columns = nets.table(name, ROWS)
        write(f"{name}.h5", columns | {"held": numpy.arange(ROWS) >= TRAINED})
        write(f"{name}-held.h5", {column: values[TRAINED:] for column, values in columns.items()})
        with open(f"{name}.options", "w", encoding="utf-8") as file:
            print(*nets.options(name), file=file)

    class Loss(torch.nn.Module):
        def forward(self, output, label):
            return torch.nn.functional.cross_entropy(output, label, reduction="none")

    torch.export.save(nets.export(Loss(), (torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64))), "loss.pt2")

    @torch.library.custom_op("mine::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    twice.register_fake(torch.empty_like)

    class Custom(nets.Mlp):
        def forward(self, x):
            return super().forward(twice(x))

    class Branch(nets.Mlp):
        def forward(self, x):
            return super().forward(x if x.shape[0] < 10 else 2 * x)

    class Dictionary(nets.Mlp):
        def forward(self, x):
            return {"logits": super().forward(x), "hidden": {"first": x + 1, "last": x + 2}}

    class WithLoss(nets.Mlp):
        def forward(self, x, labels):
            logits = super().forward(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    torch.export.save(nets.export(Dictionary(), nets.example("mlp")), "dictionary.pt2")
    torch.export.save(nets.export(WithLoss(), (*nets.example("mlp"), torch.zeros(4, dtype=torch.int64))), "with-loss.pt2")
    torch.export.save(nets.export(Branch(), nets.example("mlp")), "branch.pt2")
    torch.export.save(nets.export(Custom(), nets.example("mlp")), "custom.pt2")
    torch.export.save(torch.export.export(nets.Mlp(), nets.example("mlp")), "fixed.pt2")
    torch.jit.trace(nets.Cnn(), nets.example("cnn"), check_trace=False).save("traced.pt")
    torch.jit.trace(nets.Cnn().eval(), nets.example("cnn")).save("traced-eval.pt")
    torch.jit.script(nets.Cnn()).save("script.pt")


class Replicas:
    """The training of DistributedDataParallel: replicas with the same parameters, each with its own rows, random numbers and
    buffers, and the mean of their gradients. The buffers of rank 0 are those that count."""

    def __init__(self, name, ranks):
        self.name, self.nets = name, [nets.net(name) for _ in range(ranks)]
        self.columns = nets.table(name, ROWS)
        self.optimizer = torch.optim.SGD(self.nets[0].parameters(), RATE, MOMENTUM)
        self.random = []
        for rank in range(ranks):
            torch.manual_seed(2 + rank)
            self.random.append(torch.get_rng_state())

    def step(self, first):
        ranks = len(self.nets)
        share, batch = TRAINED // ranks, BATCH // ranks
        count = ranks * (min(first + batch, share) - first)
        total = 0.0
        for rank, net in enumerate(self.nets):
            torch.set_rng_state(self.random[rank])
            start = rank * share + first
            loss = nets.mean_loss(self.name, net.train(), self.columns, slice(start, start + count // ranks))
            net.zero_grad()
            loss.backward()
            self.random[rank] = torch.get_rng_state()
            total += loss.item() / ranks
        parameters = list(zip(*(net.parameters() for net in self.nets)))
        for same in parameters:
            if ranks > 1 and same[0].grad is not None:
                same[0].grad.copy_(sum(parameter.grad for parameter in same) / ranks)
        self.optimizer.step()
        with torch.no_grad():
            for first_one, *others in parameters:
                for other in others:
                    other.copy_(first_one)
        return total

    def validation(self):
        with torch.no_grad():
            return nets.mean_loss(self.name, self.nets[0].eval(), self.columns, slice(TRAINED, ROWS)).item()

    def epoch(self):
        share, batch = TRAINED // len(self.nets), BATCH // len(self.nets)
        losses = [self.step(first) for first in range(0, share, batch)]
        return sum(losses) / len(losses), self.validation()


def history(run):
    with open(f"runs/{run}/fit.json", encoding="utf-8") as file:
        return [(epoch["loss"], epoch["validation_loss"]) for epoch in json.load(file)["history"]]


def same_state(run, net):
    with h5py.File(f"runs/{run}/state.h5") as file:
        state = {key: torch.from_numpy(numpy.asarray(data[()])) for key, data in file.items()}
    expected = {key: torch.view_as_real(value) if value.is_complex() else value for key, value in net.state_dict().items()}
    return state.keys() == expected.keys() and all(torch.equal(state[key], expected[key]) for key in expected)


def continues(name, replicas):
    """The archive that fit has written: PyTorch goes on with it, and so does another fit."""
    programs = load_pt2(f"runs/{name}-1/model.pt2").exported_programs
    training = programs.get("train", programs["model"]).module()
    loaded = torch.export.load(f"runs/{name}-1/model.pt2").module()
    with torch.no_grad():
        validation = nets.mean_loss(name, loaded, replicas.columns, slice(TRAINED, ROWS)).item()
    torch.set_rng_state(replicas.random[0])
    loss = nets.mean_loss(name, training, replicas.columns, slice(0, BATCH)).item()
    good = validation == replicas.validation()
    again = Replicas(name, 1)
    again.nets[0].load_state_dict(replicas.nets[0].state_dict())
    good = good and loss == replicas.step(0)
    return good and history(f"{name}-again") == [again.epoch()]


def compare():
    wrong = []
    for name in nets.CASES:
        for ranks in (1, 2) if os.path.exists(f"runs/{name}-2") else (1,):
            replicas = Replicas(name, ranks)
            expected, got = [replicas.epoch() for _ in range(EPOCHS)], history(f"{name}-{ranks}")
            good = numpy.allclose(got, expected, rtol=1e-6, atol=1e-6)
            if ranks == 1:
                good = got == expected and same_state(f"{name}-1", replicas.nets[0])
            if not good:
                wrong.append(name)
                print(f"{name} on {ranks} ranks:\n got      {got}\n expected {expected}", file=sys.stderr)
            elif ranks == 1 and not continues(name, replicas):
                wrong.append(name)
                print(f"{name} does not continue", file=sys.stderr)
    sys.exit(bool(wrong))


{"export": export, "compare": compare}[sys.argv[1]]()
