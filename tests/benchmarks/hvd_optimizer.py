"""Steps with hvd.DistributedOptimizer against DDP on Gloo, in turns in one job; not a test.

    farandole run -n 2 -- python tests/benchmarks/hvd_optimizer.py [--models mnist,mlp,gpt] [--turns 15]

Prints medians, our time by DDP's, and what a hook costs for a parameter of 256 bytes.
"""
import argparse
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import farandole.torch as hvd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from ddp_step import build  # noqa: E402


def in_turns(names, measure, turns):
    """By name, the median of what measure(name) returns, of the slowest rank."""
    times = {name: [] for name in names}
    for _ in range(turns):
        for name in names:
            dist.barrier()
            times[name].append(measure(name))
    medians = torch.tensor([statistics.median(times[name]) for name in names], dtype=torch.float64)
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    return dict(zip(names, medians.tolist()))


def hooks(turns):
    """Microseconds of CPU time that the hook of each of 200 parameters adds to a backward pass."""
    sets = {name: [torch.nn.Parameter(torch.randn(64)) for _ in range(200)] for name in ("with", "without")}
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(sets["with"], 0.1))

    def backward(name):
        parameters = sets[name]
        for parameter in parameters:
            parameter.grad = None
        loss = sum((parameter * 2).sum() for parameter in parameters)
        start = time.thread_time()
        loss.backward()
        end = time.thread_time()
        if name == "with":
            optimizer.step()
        return 1e6 * (end - start) / len(parameters)

    in_turns(sets, backward, 3)
    result = in_turns(sets, backward, 3 * turns)
    return result["with"] - result["without"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="mnist,mlp,gpt")
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    dist.init_process_group("gloo")
    for model in filter(None, options.models.split(",")):
        runs = {}
        for name in ("farandole", "gloo"):
            torch.manual_seed(1)
            net, x, y, optimizer = build(model)
            if name == "gloo":
                net = DistributedDataParallel(net, gradient_as_bucket_view=True)
            else:
                optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
            runs[name] = net, x, y, optimizer
        steps = 10 if model == "mnist" else 2

        def step(name):
            net, x, y, optimizer = runs[name]
            start = time.perf_counter()
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(net(x), y).backward()
                optimizer.step()
            return 1e3 * (time.perf_counter() - start) / steps

        in_turns(runs, step, 2)
        result = in_turns(runs, step, options.turns)
        if hvd.rank() == 0:
            print(f"step {model:>9}: {result['farandole']:9.2f} ms, DDP on Gloo {result['gloo']:9.2f} ms: "
                  f"{result['farandole'] / result['gloo']:5.2f} of its time", flush=True)
    microseconds = hooks(options.turns)
    if hvd.rank() == 0:
        print(f"hook      256 B: {microseconds:9.2f} us", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
