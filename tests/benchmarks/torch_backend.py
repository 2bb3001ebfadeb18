"""The backend farandole of torch.distributed against Gloo, in turns in one job; not a test.

    farandole run -n 2 -- python tests/benchmarks/torch_backend.py [--models mnist,mlp,gpt] [--sizes 4K,1M,16M]

Prints medians and ratios: all_reduce as Gloo's time by ours, steps of DDP as our time by Gloo's.
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

import farandole.torch_backend  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from ddp_step import build  # noqa: E402


def size_of(text):
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def in_turns(groups, measure, turns):
    """By group, the median of what measure(group) returns, slowest rank."""
    times = {name: [] for name in groups}
    for _ in range(turns):
        for name, group in groups.items():
            dist.barrier(group=group)
            times[name].append(measure(name, group))
    medians = torch.tensor([statistics.median(times[name]) for name in groups], dtype=torch.float64)
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    return dict(zip(groups, medians.tolist()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="mnist,mlp,gpt")
    parser.add_argument("--sizes", default="4K,64K,1M,16M")
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("farandole")
    groups = {"farandole": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    is_first = dist.get_rank() == 0
    for text in filter(None, options.sizes.split(",")):
        values = torch.zeros(size_of(text) // 4)
        calls = max(3, min(300, 8_000_000 // size_of(text)))

        def all_reduce(_, group):
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(values, group=group)
            return 1e6 * (time.perf_counter() - start) / calls

        def waited(_, group):
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(values, group=group, async_op=True).wait()
            return 1e6 * (time.perf_counter() - start) / calls

        for what, measure in (("all_reduce", all_reduce), ("async, wait", waited)):
            result = in_turns(groups, measure, options.turns)
            if is_first:
                print(f"{what:12} {text:>5}: {result['farandole']:9.1f} us, Gloo {result['gloo']:9.1f} us: "
                      f"{result['gloo'] / result['farandole']:5.2f} times as fast", flush=True)
    for model in filter(None, options.models.split(",")):
        runs = {}
        for name, group in groups.items():
            torch.manual_seed(1)
            net, x, y, optimizer = build(model)
            ddp = DistributedDataParallel(net, process_group=group, gradient_as_bucket_view=True)
            runs[name] = ddp, x, y, optimizer
        steps = 10 if model == "mnist" else 2

        def step(name, _):
            ddp, x, y, optimizer = runs[name]
            start = time.perf_counter()
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(ddp(x), y).backward()
                optimizer.step()
            return 1e3 * (time.perf_counter() - start) / steps

        in_turns(groups, step, 2)
        result = in_turns(groups, step, options.turns)
        if is_first:
            print(f"DDP step {model:>9}: {result['farandole']:9.2f} ms, Gloo {result['gloo']:9.2f} ms: "
                  f"{result['farandole'] / result['gloo']:5.2f} of its time", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
