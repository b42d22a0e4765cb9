"""A training step on a GPU in PyTorch: eager with channels_last, and compiled with CUDA graphs.

torch_gpu.py MODEL PRECISION BATCH [compile]
"""
import statistics
import sys
import time

import torch
from torch import nn

model_name, precision, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
compiled = sys.argv[4:] == ["compile"]
torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
torch.backends.cudnn.allow_tf32 = precision != "fp32"
torch.backends.cudnn.benchmark = True
torch.manual_seed(1)
if model_name == "mlp":
    shape = (1, 28, 28)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
elif model_name != "convnet":
    import torchvision
    shape = (3, 224, 224)
    options = {"dropout": 0} if model_name == "mobilenet_v2" else {}
    model = getattr(torchvision.models, model_name)(num_classes=10, **options)
else:
    shape = (3, 32, 32)
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8192, 512), nn.ReLU(), nn.Linear(512, 10))
model = model.cuda().to(memory_format=torch.channels_last)
images = torch.randn(batch, *shape, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (batch,), device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=compiled)


def loss_of(images, labels):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
        return nn.functional.cross_entropy(model(images), labels)


if compiled:
    loss_of = torch.compile(loss_of, mode="reduce-overhead")


def step():
    loss_of(images, labels).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


for _ in range(20):
    step()
times = []
for _ in range(15):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(50):
        step()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - begin) / 50)
seconds = statistics.median(times)
kind = "compile" if compiled else "eager"
print(f"torch_{kind}_{model_name}_{precision}_{batch} {batch / seconds:.0f} samples/s | {seconds * 1e6:.1f} us")
