"""The models of bench/train_step.cpp under PyTorch's DistributedDataParallel over Gloo, one thread a rank.
torchrun --nproc-per-node 2 train_step_torch.py"""
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn


def linears(*sizes):
    layers = [nn.Flatten()]
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def convnet():
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8192, 512), nn.ReLU(), nn.Linear(512, 10))


MODELS = [("mlp", lambda: linears(784, 256, 128, 10), (64, 1, 28, 28)),
          ("mlp_large", lambda: linears(784, 2048, 2048, 10), (64, 1, 28, 28)), ("convnet", convnet, (32, 3, 32, 32))]


def measure(name, make, shape):
    model = nn.parallel.DistributedDataParallel(make())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    data, labels = torch.rand(shape), torch.arange(shape[0]) % 10
    times = []
    for _ in range(21):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data), labels).backward()
            optimizer.step()
        times.append((time.perf_counter() - begin) / 5 * 1e6)
    if dist.get_rank() == 0:
        print(f"train_step_{name} {statistics.median(times):.0f} us", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for model in MODELS:
        measure(*model)
    dist.destroy_process_group()


main()
