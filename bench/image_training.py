"""image_training.py PROGRAM [SIZE [BATCH [WORKERS]]]: trains ResNet-18 on JPEG files with bench/image_training beside PyTorch's
DistributedDataParallel and DataLoader, on two ranks with one compute thread each, alternating. Prints medians and ratios of
samples per second and of the peak memory of all processes together, the launcher among them (proportional set size). Needs
torch, torchvision, pillow and mpirun. SIZE is the width and height to which random parts of the files are resized.
torchrun image_training.py --peer FOLDER SIZE BATCH WORKERS EPOCHS: one measurement of PyTorch's."""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

FILES, WIDTH, HEIGHT, CLASSES = 640, 500, 375, 10
EPOCHS = 3
ROUNDS = 5


def measure_peer(folder, size, batch, workers, epochs):
    import torch
    import torchvision
    from torch import nn
    from torchvision import transforms

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    images = torchvision.datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
    sampler = torch.utils.data.distributed.DistributedSampler(images)
    loader = torch.utils.data.DataLoader(images, batch, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
    net = nn.parallel.DistributedDataParallel(torchvision.models.resnet18(weights=None, num_classes=len(images.classes)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    rates = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        for pixels, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(pixels), labels).backward()
            optimizer.step()
        if epoch > 0:
            rates.append(len(images) / (time.perf_counter() - begin))
    if torch.distributed.get_rank() == 0:
        print(f"{statistics.median(rates):.1f} samples/s")
    torch.distributed.destroy_process_group()


def make_files(folder):
    """Writes JPEG files of noise on several scales, about as large as photographs of this size."""
    import numpy
    from PIL import Image

    random = numpy.random.default_rng(0)
    for index in range(FILES):
        image = numpy.zeros((HEIGHT, WIDTH, 3), numpy.float32)
        for scale in (1, 2, 4, 16, 64, 256):
            noise = random.normal(0, 1, (HEIGHT // scale + 2, WIDTH // scale + 2, 3)).astype(numpy.float32)
            channels = [Image.fromarray(noise[..., c]).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC) for c in range(3)]
            image += numpy.stack([numpy.asarray(channel) for channel in channels], -1) * scale**0.45
        image = image / image.std() * 50 + 110
        path = folder / f"class{index % CLASSES}" / f"{index:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(numpy.clip(image, 0, 255).astype(numpy.uint8)).save(path, quality=90)


def memory_of_tree(root):
    """Returns the MiB of a process and all its descendants; what several of them share counts once."""
    parents = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass  # it has ended
    total, tree = 0, [root]
    while tree:
        process = tree.pop()
        tree += [child for child, parent in parents.items() if parent == process]
        try:
            total += int(pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().split("\nPss:")[1].split()[0])
        except (OSError, IndexError):
            pass
    return total / 1024


def measure(command, environment):
    """Returns the samples per second and the peak memory."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        peak, has_ended = 0, threading.Event()

        def watch():
            nonlocal peak
            while not has_ended.wait(1):
                peak = max(peak, memory_of_tree(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        output = process.stdout.read()
        has_ended.set()
        watcher.join()
    if process.returncode != 0:
        sys.exit(f"image_training: {' '.join(map(str, command))} failed with exit status {process.returncode}")
    return float(output.split()[0]), peak


def main():
    size, batch, workers = [*sys.argv[2:], *["64", "16", "2"][len(sys.argv) - 2:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with tempfile.TemporaryDirectory() as folder:
        make_files(pathlib.Path(folder))
        own = ["mpirun", "-np", "2", sys.argv[1], folder, size, batch, workers, str(EPOCHS)]
        peer = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__, "--peer", folder, size, batch,
                workers, str(EPOCHS)]
        rounds = [(measure(own, environment), measure(peer, environment)) for _ in range(ROUNDS)]
    ours, theirs = ([statistics.median(r[side][k] for r in rounds) for k in range(2)] for side in range(2))
    faster = statistics.median(r[0][0] / r[1][0] for r in rounds)
    print(f"ResNet-18, JPEG files of {WIDTH} x {HEIGHT} to {size} x {size}, 2 ranks, batch {batch}, {workers} workers: "
          f"{ours[0]:.1f} samples/s | PyTorch {theirs[0]:.1f} samples/s | {faster:.2f} x as fast; "
          f"{ours[1]:.0f} MiB | PyTorch {theirs[1]:.0f} MiB | {ours[1] / theirs[1]:.2f}")


if len(sys.argv) > 2 and sys.argv[1] == "--peer":
    measure_peer(sys.argv[2], *map(int, sys.argv[3:]))
else:
    main()
