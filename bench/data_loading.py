"""data_loading.py PROGRAM [FOLDER]: measures bench/data_loading beside PyTorch's DataLoader, alternating, and prints medians
and ratios. With a folder of images by class, also beside torchvision's ImageFolder."""
import statistics
import subprocess
import sys
import time

import torch


def seconds_of(loader):
    begin = time.time()
    for _ in loader:
        pass
    return time.time() - begin


def rate_of(dataset, batch_size, workers, passes):
    loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=workers,
                                         persistent_workers=workers > 0)
    return statistics.median(len(dataset) / seconds_of(loader) for _ in range(passes))


def compare(name, arguments, peer, rounds):
    pairs = []
    for _ in range(rounds):
        own = subprocess.run([sys.argv[1], *arguments], check=True, capture_output=True, text=True).stdout
        pairs.append((float(own.split()[0]), peer()))
    own, other = (statistics.median(pair[i] for pair in pairs) for i in range(2))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"{name}: {own:.0f} samples/s | PyTorch {other:.0f} samples/s | ratio {ratio:.2f}", flush=True)


memory = torch.utils.data.TensorDataset(torch.full((60000, 28, 28), 0.5), torch.full((60000,), 3))
for workers in (0, 2):
    compare(f"28 x 28 numbers in memory, {workers} workers", ["memory", str(workers)],
            lambda: rate_of(memory, 64, workers, 1), 5)
if len(sys.argv) > 2:
    from torchvision import datasets, transforms

    statistics_of_imagenet = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    images = datasets.ImageFolder(sys.argv[2], transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(*statistics_of_imagenet)]))
    for workers in (1, 2):
        compare(f"a folder of images, {workers} workers", ["images", str(workers), sys.argv[2]],
                lambda: rate_of(images, 32, workers, 2), 5)
