#!/usr/bin/env python3
"""Writes tests/train/distributed_sampler_reference.inc: what torch.utils.data.DistributedSampler itself deals out.

Run with any PyTorch: python3 tests/compare/sampler_reference.py > tests/train/distributed_sampler_reference.inc
"""
import zlib

import torch
from torch.utils.data import DistributedSampler


def shares(size, world, shuffle, drop_last, seed, epoch):
    lists = []
    for rank in range(world):
        sampler = DistributedSampler(range(size), num_replicas=world, rank=rank, shuffle=shuffle, seed=seed,
                                     drop_last=drop_last)
        sampler.set_epoch(epoch)
        lists.append(list(sampler))
    return lists


def main():
    print(f"// Written by tests/compare/sampler_reference.py with PyTorch {torch.__version__.split('+')[0]}.")
    print("// {size, world size, shuffle, drop_last, seed, epoch, {the indices of rank 0, of rank 1, ...}},")
    for size in (1, 2, 5, 10, 13):
        for world in (1, 2, 3, 4, 7):
            for drop_last in (False, True):
                if drop_last and size < world:
                    continue  # PyTorch deals nothing, we refuse
                for shuffle, seed, epoch in ((False, 0, 0), (True, 0, 0), (True, 0, 1), (True, 42, 3)):
                    lists = ", ".join("{" + ", ".join(map(str, l)) + "}"
                                      for l in shares(size, world, shuffle, drop_last, seed, epoch))
                    flags = f"{str(shuffle).lower()}, {str(drop_last).lower()}"
                    print(f"{{{size}, {world}, {flags}, {seed}, {epoch}, {{{lists}}}}},")


def large():
    """Sizes whose lists are too long to keep: CRC-32 of the ranks' indices as little-endian int64, one after another."""
    print("#else")
    print("// {size, world size, shuffle, drop_last, seed, epoch, CRC-32},")
    for size, world, seed, epoch in ((10000, 4, 0, 0), (60000, 7, 0, 9), (100003, 16, 2**31 + 5, 2), (65537, 3, 2**40, 1)):
        for drop_last in (False, True):
            crc = 0
            for share in shares(size, world, True, drop_last, seed, epoch):
                crc = zlib.crc32(torch.tensor(share, dtype=torch.int64).numpy().tobytes(), crc)
            print(f"{{{size}, {world}, true, {str(drop_last).lower()}, {seed}, {epoch}, {crc}u}},")


if __name__ == "__main__":
    print("#ifdef FARANDOLE_SMALL_SAMPLERS")
    main()
    large()
    print("#endif")
