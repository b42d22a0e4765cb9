"""compare.py DPTK_RUN RECORD DIGITS: PyTorch's DistributedDataParallel repeats what dptk has recorded, on two ranks over
Gloo, for MLP and ConvNet, SGD and Adam, and plain, accumulating and uneven schedules (see record.cpp).

- From dptk's weights before each step, the averaged gradients agree within 1e-5 of their norm.
- Running free from the first weights, the first ten losses agree within 1e-5.
"""

import contextlib
import gzip
import itertools
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
STEPS = 50
STEPS_OF_THE_SHORT = 8
FREE_STEPS = 10
BATCH_SIZE = 8
TOLERANCE = 1e-5


def make_model(name):
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128 * 2 * 2, 512), nn.ReLU(), nn.Linear(512, 10))


def make_optimizer(name, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
    return torch.optim.Adam(parameters, lr=0.001)


def read_numbers(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.float64)


def read_digits(prefix):
    def elements(name, header):
        with gzip.open(prefix + name) as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    images = elements("images-idx3-ubyte.gz", 16).reshape(-1, 1, 8, 8)
    return images.to(torch.float64) / 16, elements("labels-idx1-ubyte.gz", 8).long()


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


class Training:
    """One rank's."""

    def __init__(self, rank, digits, model, schedule, weights):
        self.rank = rank
        self.images, self.labels = digits
        self.ddp = DistributedDataParallel(make_model(model).double())
        self.schedule = schedule
        self.micro = 3 if schedule == "accumulate" else 1
        self.set_weights(weights)

    def set_weights(self, weights):
        with torch.no_grad():
            first = 0
            for parameter in self.ddp.parameters():
                parameter.copy_(weights[first:first + parameter.numel()].view_as(parameter))
                first += parameter.numel()

    def joined(self):
        return Join([self.ddp]) if self.schedule == "uneven" else contextlib.nullcontext()

    def steps(self, most):
        return min(most, STEPS_OF_THE_SHORT) if self.schedule == "uneven" and self.rank == 0 else most

    def backward(self, step):
        """The loss; the gradients are the average behind it."""
        self.ddp.zero_grad()
        total = 0.0
        for m in range(self.micro):
            last = m + 1 == self.micro
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                first = ((step * self.micro + m) * RANKS + self.rank) * BATCH_SIZE
                samples = (torch.arange(BATCH_SIZE) + first) % len(self.labels)
                loss = F.cross_entropy(self.ddp(self.images[samples]), self.labels[samples])
                loss.backward()
                total += loss.item() / self.micro
        return total


def worse(a, b):
    """The larger; what is no number is worse than all."""
    return a if b <= a else b


def worst_gradient(training, folder):
    weights = read_numbers(f"{folder}/weights").view(STEPS, -1)
    gradients = read_numbers(f"{folder}/gradients").view(STEPS, -1)
    worst = 0.0
    with training.joined():
        for step in range(training.steps(STEPS)):
            training.set_weights(weights[step])
            training.backward(step)
            found = flat(parameter.grad for parameter in training.ddp.parameters())
            worst = worse(worst, ((gradients[step] - found).norm() / found.norm()).item())
    return worst


def worst_loss(training, optimizer_name, folder):
    losses = read_numbers(f"{folder}/loss.{training.rank}")
    optimizer = make_optimizer(optimizer_name, training.ddp.parameters())
    worst = 0.0
    with training.joined():
        for step in range(training.steps(FREE_STEPS)):
            worst = worse(worst, abs(training.backward(step) - losses[step].item()))
            optimizer.step()
    return worst


def work(rank, dptk_run, record, digits_prefix, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    digits = read_digits(digits_prefix)
    failed = False
    for model, optimizer, schedule in itertools.product(
            ("mlp", "convnet"), ("sgd", "adam"), ("plain", "accumulate", "uneven")):
        case = f"{folder}/{model}-{optimizer}-{schedule}"
        if rank == 0:
            os.mkdir(case)
            subprocess.run([dptk_run, "--nproc-per-node", str(RANKS), "--", record, case, model, optimizer,
                            schedule], check=True)
        dist.barrier()
        first = read_numbers(f"{case}/weights").view(STEPS, -1)[0]
        found = torch.tensor([
            worst_gradient(Training(rank, digits, model, schedule, first), case),
            worst_loss(Training(rank, digits, model, schedule, first), optimizer, case)], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        ok = bool((found <= TOLERANCE).all())
        failed = failed or not ok
        if rank == 0:
            print(f"{model:8}{optimizer:5}{schedule:11} gradients {found[0]:.1e}  losses {found[1]:.1e}"
                  f"{'' if ok else '  FAILED'}", flush=True)
            shutil.rmtree(case)
    dist.destroy_process_group()
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dptk-torch-") as folder:
        mp.spawn(work, args=(*sys.argv[1:4], folder), nprocs=RANKS)
