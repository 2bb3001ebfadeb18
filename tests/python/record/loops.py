"""Loops of one's own without a DataLoader, on one rank. Prints the steps, and by its own clock the seconds of each part, under
the name that the timeline has for it."""
import collections
import sys
import time

import torch
import torch.nn as nn

import farandole.record as record

spent = collections.defaultdict(float)
steps = 0


class timed:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.begin = time.perf_counter()

    def __exit__(self, *_):
        spent[self.name] += time.perf_counter() - self.begin


class Slow(nn.Module):
    """Has no parameters, as the transforms and losses of many programs."""

    def forward(self, values):
        time.sleep(0.005)
        return values


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), Slow(), nn.Linear(64, 64))

    def forward(self, batch):
        return self.layers(batch)


def train(batches, forward, parameters):
    global steps
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    for batch in batches:
        loss = forward(batch)
        with timed("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1


def made(count, name="before forward", around=None):
    for _ in range(count):
        with timed(name):
            if around is None:
                batch = Slow()(torch.randn(32, 64))
            else:
                with around:
                    batch = Slow()(torch.randn(32, 64))
        yield batch


def main():
    net, teacher = Net(), Net()
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    layers[1].register_forward_hook(lambda *_: None)  # which torch.compile traces
    compiled = torch.compile(layers, backend=lambda graph, _: graph.forward, fullgraph=True)
    loss = Slow()

    def step(batch, net=net):
        with timed("forward"):
            return loss(net(batch)).square().mean()

    def compiled_step(batch):
        return step(batch, compiled)

    def taught(batch):
        with timed("forward"), torch.no_grad():
            target = teacher(batch)
        with timed("forward"):
            return (net(batch) - target).square().mean()

    def without_modules(batch):
        with timed("forward"):
            time.sleep(0.005)
            return (batch @ weight).square().mean()

    def evaluated(batch):
        value = step(batch)
        with timed("evaluation"), torch.no_grad():
            net(batch)
        return value

    def in_span(batch):
        with timed("mine"), record.span("mine"):
            time.sleep(0.005)
        return step(batch)

    full_batch = torch.randn(32, 64)
    with torch.no_grad():
        teacher(full_batch)  # The recorder starts, which is not timed.
    weight = torch.randn(64, 64, requires_grad=True)
    train(made(20), step, net.parameters())
    train(made(20), compiled_step, layers.parameters())
    train(made(20), taught, net.parameters())
    train(made(20, "data", record.span("data")), step, net.parameters())
    train([full_batch] * 20, in_span, net.parameters())
    train(made(20, "whole forward"), without_modules, [weight])
    train([full_batch] * 20, evaluated, net.parameters())
    spent["forward"] += spent.pop("whole forward")  # Nothing says where it begins.

    def closure():
        optimizer.zero_grad()
        value = step(full_batch)
        value.backward()
        return value

    optimizer = torch.optim.Adam(net.parameters())  # calls it within its step, as Lightning does
    for _ in range(20):
        optimizer.step(closure)
    print(f"steps {steps + 20}")
    for name, seconds in spent.items():
        print(f"{seconds:.6f} by the own clock in {name}", file=sys.stderr)


main()
