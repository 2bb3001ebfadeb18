"""Times torch.save and DCP for a state like that of farandole bench checkpoint; prints JSON on rank 0. Started by torchrun.

Like Farandole, the ranks have equal states, which is what DDP leaves them. DCP writes such a state from all ranks, without
duplicates. torch.save writes on rank 0. All files are synchronized with the disk before a checkpoint counts as durable.
"""
import argparse
import json
import os
import pathlib
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def state_of(width=384, layers=6, context=256, vocabulary=256):
    """Parameters of a GPT, and two more tensors of each for AdamW."""
    shapes = {"wte": (vocabulary, width), "wpe": (context, width), "head": (vocabulary, width)}
    for i in range(layers):
        shapes |= {f"{i}.attn": (3 * width, width), f"{i}.proj": (width, width), f"{i}.fc": (4 * width, width),
                   f"{i}.out": (width, 4 * width), f"{i}.ln": (4, width), f"{i}.bias": (9 * width,)}
    return {f"{kind}.{name}": torch.randn(shape) for kind in ("model", "exp_avg", "exp_avg_sq") for name, shape in shapes.items()}


def synchronize(path):
    for file in [path] if path.is_file() else path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--repetitions", type=int)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    leads = dist.get_rank() == 0
    torch.manual_seed(1)
    state = state_of()
    times = {name: {"stall_ms": [], "total_ms": []} for name in ("torch.save", "dcp.async_save")}
    for repetition in range(options.repetitions + 1):  # The first one allocates.
        file = options.folder / f"torch-{os.environ['TORCHELASTIC_RUN_ID']}-{repetition}.pt"
        dist.barrier()
        begin = time.perf_counter()
        if leads:
            torch.save(state, file)
            synchronize(file)
        dist.barrier()
        stall = total = time.perf_counter() - begin
        if leads:
            file.unlink()
        if repetition > 0:
            times["torch.save"]["stall_ms"].append(1e3 * stall)
            times["torch.save"]["total_ms"].append(1e3 * total)
        folder = file.with_suffix(".dcp")
        dist.barrier()
        begin = time.perf_counter()
        future = dcp.async_save(state, checkpoint_id=str(folder))
        stall = time.perf_counter() - begin
        future.result()
        total = time.perf_counter() - begin
        dist.barrier()
        if leads:
            shutil.rmtree(folder)
        if repetition > 0:
            times["dcp.async_save"]["stall_ms"].append(1e3 * stall)
            times["dcp.async_save"]["total_ms"].append(1e3 * total)
    if leads:
        print(json.dumps(times))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
