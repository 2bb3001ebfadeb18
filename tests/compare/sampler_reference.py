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


def crc_of(shares_of_ranks):
    """CRC-32 of the ranks' indices as little-endian int64, one after another."""
    crc = 0
    for share in shares_of_ranks:
        crc = zlib.crc32(torch.tensor(share, dtype=torch.int64).numpy().tobytes(), crc)
    return f"{crc}u"


def small():
    print(f"// Written by tests/compare/sampler_reference.py with PyTorch {torch.__version__.split('+')[0]}. A CRC-32 is that of the")
    print("// ranks' indices as little-endian int64, one after another.")
    print("// {size, world size, drop_last, {CRC-32 without shuffling, with seed and epoch 0 0, 0 1, 42 3}},")
    for size in (1, 2, 5, 10, 13):
        for world in (1, 2, 3, 4, 7):
            for drop_last in (False, True):
                if drop_last and size < world:
                    continue  # PyTorch deals nothing, we refuse
                orders = ((False, 0, 0), (True, 0, 0), (True, 0, 1), (True, 42, 3))
                crcs = ", ".join(crc_of(shares(size, world, shuffle, drop_last, seed, epoch)) for shuffle, seed, epoch in orders)
                print(f"{{{size}, {world}, {str(drop_last).lower()}, {{{crcs}}}}},")


def large():
    print("#else")
    print("// {size, world size, shuffle, drop_last, seed, epoch, CRC-32},")
    for size, world, seed, epoch in ((10000, 4, 0, 0), (60000, 7, 0, 9), (100003, 16, 2**31 + 5, 2), (65537, 3, 2**40, 1)):
        for drop_last in (False, True):
            crc = crc_of(shares(size, world, True, drop_last, seed, epoch))
            print(f"{{{size}, {world}, true, {str(drop_last).lower()}, {seed}, {epoch}, {crc}}},")


if __name__ == "__main__":
    print("#ifdef FARANDOLE_SMALL_SAMPLERS")
    small()
    large()
    print("#endif")
