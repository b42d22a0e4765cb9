"""compare.py DPTK_RUN RECORD DIGITS: repeats the steps of record.cpp with PyTorch's DistributedDataParallel, on 2 and 4
ranks over Gloo. From the recorded weights before each of 50 steps, it computes the averaged gradients, which must agree within
1e-5 of their norm. The timeline of the recorded steps must have buckets that were sent while backward was running."""

import gzip
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 50
BATCH_SIZE = 16
TOLERANCE = 1e-5


def read_digits(prefix):
    def elements(name, header):
        with gzip.open(prefix + name) as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    images = elements("images-idx3-ubyte.gz", 16).reshape(-1, 1, 8, 8).float()
    return images / images.max(), elements("labels-idx1-ubyte.gz", 8).long()


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10))


def read_numbers(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.float32).view(STEPS, -1)


def work(rank, ranks, digits, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{ranks}", rank=rank, world_size=ranks)
    images, labels = digits
    model = DistributedDataParallel(make_model())
    weights, gradients = read_numbers(f"{folder}/{ranks}.weights"), read_numbers(f"{folder}/{ranks}.gradients")
    worst = 0.0
    for step in range(STEPS):
        with torch.no_grad():
            first = 0
            for parameter in model.parameters():
                parameter.copy_(weights[step][first:first + parameter.numel()].view_as(parameter))
                first += parameter.numel()
        samples = (torch.arange(BATCH_SIZE) + (step * ranks + rank) * BATCH_SIZE) % len(labels)
        model.zero_grad()
        F.cross_entropy(model(images[samples]), labels[samples]).backward()
        found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        difference = ((gradients[step] - found).norm() / found.norm()).item()
        worst = difference if not difference <= worst else worst
    dist.destroy_process_group()
    if rank == 0:
        print(f"{ranks} ranks, {STEPS} steps: gradients differ by {worst:.1e} of their norm", flush=True)
    if not worst <= TOLERANCE:
        sys.exit(f"FAILED: more than {TOLERANCE}")


def check_overlap(path, ranks):
    with open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    for rank in range(ranks):
        of_rank = [event for event in events if event["pid"] == rank]
        backward = [event for event in of_rank if event["name"] == "backward"]
        buckets = [event for event in of_rank if event["name"].startswith("bucket ")]
        early = sum(any(b["ts"] < event["ts"] < b["ts"] + b["dur"] for b in backward) for event in buckets)
        if rank == 0:
            print(f"{ranks} ranks: {early} of {len(buckets)} buckets were sent while backward was running", flush=True)
        if len(backward) != STEPS or early < STEPS / 2:  # on a loaded machine, some of one per step are late
            sys.exit(f"FAILED: on rank {rank}, {early} buckets were sent early in {len(backward)} steps")


def main():
    dptk_run, record, digits_prefix = sys.argv[1:4]
    digits = read_digits(digits_prefix)
    with tempfile.TemporaryDirectory(prefix="dptk-libtorch-") as folder:
        for ranks in (2, 4):
            trace = f"{folder}/trace{ranks}.json"
            # Pretends that there are spare processors, so that buckets are sent early on any machine.
            subprocess.run([dptk_run, "--nproc-per-node", str(ranks), "--", record, f"{folder}/{ranks}", digits_prefix],
                           check=True, env={**os.environ, "DPTK_TRACE": trace, "DPTK_PROCESSORS": "64"})
            check_overlap(trace, ranks)
            mp.spawn(work, args=(ranks, digits, folder), nprocs=ranks)


if __name__ == "__main__":
    main()
