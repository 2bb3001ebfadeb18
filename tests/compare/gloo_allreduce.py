"""One rank of PyTorch's all_reduce on Gloo, float32, by size.

Prints, from rank 0, one JSON line: {"gloo_us": {"BYTES": MEDIAN, …}}. Started by tests/compare/nodes.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist


def size_of(text):
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", default="256M")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times, size = {}, 8
    while size <= size_of(options.to):
        values = torch.zeros(size // 4)
        calls = max(2, min(200, 4_000_000 // size))
        samples = []
        for repetition in range(6):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(values)
            if repetition > 0:
                samples.append(1e6 * (time.perf_counter() - start) / calls)
        times[size] = statistics.median(samples)
        size *= 8
    if dist.get_rank() == 0:
        print(json.dumps({"gloo_us": times}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
