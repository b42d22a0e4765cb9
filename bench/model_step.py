"""model_step.py PROGRAM: measures a training step of the models of the field with bench/model_step beside PyTorch, with one
thread, alternating, and prints medians and ratios of time and of peak memory.
model_step.py --peer MODEL BATCH SIZE: one measurement of PyTorch's."""
import os
import resource
import statistics
import subprocess
import sys
import time

MODELS = [("resnet18", 16, 64), ("resnet50", 4, 224), ("mobilenet_v2", 8, 96)]
ROUNDS = 5


def measure_peer(model, batch, size):
    import torch
    import torchvision

    torch.set_num_threads(1)
    net = getattr(torchvision.models, model)(weights=None)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    data, labels = torch.rand(batch, 3, size, size), torch.arange(batch) % 10
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(data), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{statistics.median(times) * 1000:.2f} {memory:.1f}")


def main():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for model, batch, size in MODELS:
        arguments = [model, str(batch), str(size)]
        rounds = []
        for _ in range(ROUNDS):
            both = [subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, env=environment).stdout
                    for command in ([sys.argv[1]], [sys.executable, __file__, "--peer"])]
            rounds.append([[float(number) for number in line.split()] for line in both])
        own, peer = ([statistics.median(r[i][k] for r in rounds) for k in range(2)] for i in range(2))
        faster = statistics.median(r[1][0] / r[0][0] for r in rounds)
        print(f"{model}, batch {batch}, 3 x {size} x {size}: {own[0]:.1f} ms | PyTorch {peer[0]:.1f} ms | {faster:.2f} x as fast; "
              f"{own[1]:.0f} MiB | PyTorch {peer[1]:.0f} MiB | {own[1] / peer[1]:.2f}", flush=True)


if len(sys.argv) > 2 and sys.argv[1] == "--peer":
    measure_peer(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    main()
