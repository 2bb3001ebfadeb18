"""One rank of the tests of the backend farandole. backend.sh starts it with the name of a part."""
import argparse
import faulthandler
import random
import sys
import time

import torch
import torch.distributed as dist

import farandole.torch_backend


def collectives(seed):
    """World, groups of some ranks, and a mesh's groups, with random calls of every function."""
    from backend_collectives import compare
    size = dist.get_world_size()
    rng = random.Random(seed)
    groups = [(dist.group.WORLD, dist.new_group(backend="gloo"))]
    for _ in range(2):
        ranks = rng.sample(range(size), rng.randint(1, size))
        pair = dist.new_group(ranks), dist.new_group(ranks, backend="gloo")
        if dist.get_rank() in ranks:
            groups.append(pair)
    for number, (ours, gloo) in enumerate(groups):
        assert ours.name() == "farandole" and dist.get_backend(ours) == "farandole"
        for repetition in range(6 if number == 0 else 2):
            compare(ours, gloo, hash((seed, number, repetition)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["collectives", "training"])
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(float(__import__("os").environ.get("LIMIT","300")), exit=True)
    if options.part == "training":
        farandole.torch_backend.install()
    dist.init_process_group("farandole" if options.part == "collectives" else "gloo")
    assert dist.get_backend() == "farandole"
    seed = [options.seed or time.time_ns() % 1_000_000_000]
    dist.broadcast_object_list(seed)
    print(f"seed {seed[0]}", file=sys.stderr)
    if options.part == "collectives":
        collectives(seed[0])
    else:
        import backend_training
        for part in backend_training.ALL:
            print(part.__name__, file=sys.stderr)
            part()
    dist.destroy_process_group()
    print("equal")


if __name__ == "__main__":
    main()
