#!/usr/bin/env python3
"""Records the indices of torch.utils.data.DistributedSampler for the test of dptk::DistributedSampler.

    record_distributed_sampler.py > distributed_sampler_torch.txt

Each line is `n W checksum`: n samples, W replicas, and the FNV-1a 64 checksum of the indices for all
SEEDS x EPOCHS x shuffle x drop_last x ranks, nested in this order. Per rank, the checksum covers
the number of its indices and then each index, as four bytes, lowest first. The output depends only on torch
(recorded with 1.13; the algorithm for these n is the same in all versions).
"""

import itertools
import struct

from torch.utils.data import DistributedSampler

LARGEST_N = 200
LARGEST_W = 9
SEEDS = (0, 7, 2**32 + 1)
EPOCHS = (0, 1, 5)


def fnv1a(data):
    checksum = 0xCBF29CE484222325
    for byte in data:
        checksum = ((checksum ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return checksum


def recorded_bytes(n, replicas):
    out = bytearray()
    for seed, epoch, shuffle, drop_last, rank in itertools.product(
        SEEDS, EPOCHS, (False, True), (False, True), range(replicas)
    ):
        sampler = DistributedSampler(
            range(n), num_replicas=replicas, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        sampler.set_epoch(epoch)
        indices = list(sampler)
        out += struct.pack(f"<{1 + len(indices)}I", len(indices), *indices)
    return out


def main():
    for n, replicas in itertools.product(range(LARGEST_N + 1), range(1, LARGEST_W + 1)):
        print(n, replicas, f"{fnv1a(recorded_bytes(n, replicas)):016x}")


if __name__ == "__main__":
    main()
