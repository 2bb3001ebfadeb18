"""One rank of the tests of the backend farandole. backend.sh starts it with the name of a part."""
import argparse
import faulthandler
import random
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import farandole.torch_backend


def collectives(seed):
    """World, groups of some ranks, and a mesh's groups, with random calls of every function."""
    from backend_collectives import compare
    size = dist.get_world_size()
    rng = random.Random(seed)
    groups = [(0, dist.group.WORLD, dist.new_group(backend="gloo"))]
    for number in (1, 2):
        ranks = rng.sample(range(size), rng.randint(1, size))
        entry = number, dist.new_group(ranks), dist.new_group(ranks, backend="gloo")
        if dist.get_rank() in ranks:
            groups.append(entry)
    for number, ours, gloo in groups:
        assert ours.name() == "farandole" and dist.get_backend(ours) == "farandole"
        for repetition in range(4 if number == 0 else 2):
            compare(ours, gloo, hash((seed, number, repetition)))
    dist.barrier()
    if dist.get_rank() == 0 and size > 1:
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=0.1))
        except RuntimeError as error:
            assert f"ranks {', '.join(map(str, range(1, size)))} of the group" in str(error), error
        else:
            raise AssertionError("monitored_barrier() has not missed anyone")


def fault(kind):
    """A job that cannot go on. Rank 2 lives until the others wait for it."""
    rank = dist.get_rank()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    if kind == "mismatch":
        dist.all_reduce(torch.ones(4 + (rank == 1)))
    elif kind == "backward":
        net(torch.ones(1, 8)).sum().backward() if rank != 1 else dist.all_reduce(torch.ones(3))
    else:
        if rank == 2:
            dist.recv(torch.zeros(1), 0)
            raise ValueError("no more data")
        if rank == 0:
            dist.send(torch.zeros(1), 2)
        net(torch.ones(1, 8)).sum().backward()
    raise AssertionError("the job should have ended")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["collectives", "training", "mismatch", "backward", "exception"])
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(500, exit=True)
    if options.part == "training":
        farandole.torch_backend.install()
    dist.init_process_group("gloo" if options.part == "training" else "farandole")
    assert dist.get_backend() == "farandole"
    seed = [options.seed or time.time_ns() % 1_000_000_000]
    dist.broadcast_object_list(seed)
    print(f"seed {seed[0]}", file=sys.stderr)
    if options.part == "collectives":
        collectives(seed[0])
    elif options.part != "training":
        fault(options.part)
    else:
        import backend_training
        for part in backend_training.ALL:
            if torch.__version__ < backend_training.SINCE.get(part, "0"):
                continue
            start = time.time()
            part()
            print(f"{part.__name__}: {time.time() - start:.1f} s", file=sys.stderr)
    dist.destroy_process_group()
    print("equal")


if __name__ == "__main__":
    main()
