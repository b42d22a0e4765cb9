#!/usr/bin/python3
"""Writes torch_outputs.txt: what PyTorch computes, in double precision, for the cases of torch_cases.hpp.

Inputs, parameters and output gradients come from `pattern`, which the C++ side computes identically. Each line holds a
name, a count and that many values. Run it with any PyTorch from 1.13 on; the result is deterministic.
"""

import math
import pathlib

import torch
from torch import nn


def pattern(stream: int, count: int, dtype=torch.float64) -> torch.Tensor:
    """Multiples of 2^-17 in [-1/4, 1/4), exact in float and double: a hash of stream and index."""
    mask = 0xFFFFFFFF
    values = []
    for i in range(count):
        h = (i * 2654435761 + stream * 40503 + 12345) & mask
        h = ((h ^ (h >> 15)) * 2246822519) & mask
        h = ((h ^ (h >> 13)) * 3266489917) & mask
        values.append(((h >> 16) - 32768) / 131072)
    return torch.tensor(values, dtype=dtype)


def conv_net_small():
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(5 * 4 * 3, 7), nn.ReLU(), nn.Linear(7, 4))


def mlp(features, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, classes))


def lenet(channels, size, classes):
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * (size // 4) ** 2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes))


def convnet(channels, size, classes):
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128 * (size // 4) ** 2, 512), nn.ReLU(), nn.Linear(512, classes))


# name: (model, input shape with batch, whether the loss is cross-entropy, whether gradients are recorded in full)
CASES = {
    "linear": (nn.Sequential(nn.Linear(5, 3)), (4, 5), False, True),
    "relu": (nn.Sequential(nn.ReLU()), (2, 3, 4, 5), False, True),
    "conv": (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)), (2, 3, 6, 5), False, True),
    "conv_no_padding": (nn.Sequential(nn.Conv2d(1, 17, 2)), (3, 1, 4, 5), False, True),
    "conv_stride": (nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1)), (2, 2, 8, 6), False, True),
    "conv_large": (nn.Sequential(nn.Conv2d(2, 3, 5, stride=3, padding=2)), (2, 2, 7, 9), False, True),
    "pool": (nn.Sequential(nn.MaxPool2d(2)), (2, 3, 7, 4), False, True),
    "pool_3": (nn.Sequential(nn.MaxPool2d(3)), (2, 2, 8, 6), False, True),
    "flatten": (nn.Sequential(nn.Flatten(), nn.Linear(24, 3)), (2, 2, 4, 3), False, True),
    "small_net": (conv_net_small(), (6, 3, 8, 6), True, True),
    "mlp": (mlp(64, 10), (5, 1, 8, 8), True, False),
    "lenet": (lenet(1, 12, 10), (4, 1, 12, 12), True, False),
    "convnet": (convnet(3, 8, 10), (4, 3, 8, 8), True, False),
}

lines = []


def record(name, tensor, digits=17):
    values = tensor.detach().reshape(-1).tolist()
    lines.append(" ".join([name, str(len(values))] + [f"{v:.{digits}g}" for v in values]))


def record_case(name, model, shape, cross_entropy, in_full):
    model = model.double()
    for i, parameter in enumerate(model.parameters()):
        # Halved for the deep models, whose softmax would saturate otherwise.
        parameter.data = ((1 if in_full else 0.5) * pattern(i + 1, parameter.numel())).reshape(parameter.shape)
    count = torch.Size(shape).numel()
    inputs = (4 * pattern(100, count)).reshape(shape).requires_grad_()
    outputs = model(inputs)
    record(f"{name}/output", outputs)
    if cross_entropy:
        labels = torch.tensor([i * 7 % outputs.shape[1] for i in range(shape[0])])
        loss = nn.functional.cross_entropy(outputs, labels)
        loss.backward()
        record(f"{name}/loss", loss)
        record(f"{name}/correct", (outputs.argmax(1) == labels).sum())
    else:
        outputs.backward(pattern(200, outputs.numel()).reshape(outputs.shape))
    record(f"{name}/input_gradient", inputs.grad)
    for key, parameter in model.named_parameters():
        gradient = parameter.grad.reshape(-1)
        if in_full:
            record(f"{name}/{key}", gradient)
        else:  # the sum, the norm, and a projection that detects elements in the wrong place
            weights = pattern(300, gradient.numel())
            record(f"{name}/{key}", torch.stack([gradient.sum(), gradient.norm(), gradient @ weights]))


def record_steps(name, optimizer_class, dtype, digits, **options):
    parameter = nn.Parameter(pattern(1, 12, dtype))
    optimizer = optimizer_class([parameter], **options)
    for step in range(10):
        parameter.grad = pattern(10 + step, 12, dtype)
        optimizer.step()
        record(f"{name}/step{step + 1}", parameter, digits)


def record_groups(name, optimizer_class, **options):
    """Two groups, whose rates a schedule changes: all values after 100 steps. And their average."""
    decayed, other = nn.Parameter(pattern(1, 12)), nn.Parameter(pattern(2, 5))
    lr = options["lr"]
    optimizer = optimizer_class([{"params": [decayed]}, {"params": [other], "lr": 0.5 * lr, "weight_decay": 0}], **options)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 70])
    averaged = torch.optim.swa_utils.AveragedModel(
        nn.ParameterList([decayed, other]), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for step in range(100):
        decayed.grad, other.grad = pattern(10 + step, 12), pattern(200 + step, 5)
        optimizer.step()
        schedule.step()
        averaged.update_parameters(nn.ParameterList([decayed, other]))
    record(f"{name}/values", torch.cat([decayed, other]))
    record(f"{name}/averages", torch.cat(list(averaged.module)))


def record_schedule(name, scheduler_class, *arguments, steps=40, **options):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = scheduler_class(optimizer, *arguments, **options)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    record(f"schedule_{name}", torch.tensor(rates, dtype=torch.float64))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for case_name, case in CASES.items():
        record_case(case_name, *case)
    for suffix, element, precision in (("f32", torch.float32, 9), ("f64", torch.float64, 17)):
        sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
        record_steps(f"sgd_plain_{suffix}", sgd, element, precision, lr=0.1)
        record_steps(f"sgd_decay_{suffix}", sgd, element, precision, lr=0.1, weight_decay=0.01)
        record_steps(f"sgd_momentum_{suffix}", sgd, element, precision, lr=0.1, momentum=0.9, weight_decay=0.01)
        record_steps(f"adam_{suffix}", adam, element, precision, lr=0.1)
        record_steps(f"adam_decay_{suffix}", adam, element, precision, lr=0.1, betas=(0.8, 0.9), weight_decay=0.1)
        record_steps(f"adamw_{suffix}", adamw, element, precision, lr=0.1)
    record_groups("groups_sgd", torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    record_groups("groups_dampened", torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01)
    record_groups("groups_adam", torch.optim.Adam, lr=0.01, weight_decay=0.1)
    record_groups("groups_adamw", torch.optim.AdamW, lr=0.01, weight_decay=0.1)
    for loss_name, options in {
            "smoothed": dict(label_smoothing=0.1),
            "weighted": dict(weight=torch.tensor([0.5, 1, 2, 0, 3, 0.25], dtype=torch.float64)),
            "smoothed_weighted": dict(label_smoothing=0.3, weight=torch.tensor([0.5, 1, 2, 0, 3, 0.25], dtype=torch.float64)),
    }.items():
        logits = (10 * pattern(1, 30)).reshape(5, 6).requires_grad_()
        loss = nn.functional.cross_entropy(logits, torch.tensor([0, 5, 2, 2, 4]), **options)
        loss.backward()
        record(f"loss_{loss_name}/loss", loss)
        record(f"loss_{loss_name}/gradient", logits.grad)
    outputs = pattern(1, 12).reshape(3, 4).requires_grad_()
    loss = nn.functional.mse_loss(outputs, pattern(2, 12).reshape(3, 4))
    loss.backward()
    record("mse/loss", loss)
    record("mse/gradient", outputs.grad)
    rates = torch.optim.lr_scheduler
    record_schedule("cosine", rates.CosineAnnealingLR, T_max=39, eta_min=0.05)
    record_schedule("multi_step", rates.MultiStepLR, [7, 20, 21], gamma=0.3)
    record_schedule("linear", rates.LinearLR, start_factor=0.25, end_factor=0.75, total_iters=13)
    record_schedule("warmup", rates.LambdaLR, lambda step: min((step + 1) / 6, 1) * (1 + math.cos(math.pi * step / 40)) / 2)
    path = pathlib.Path(__file__).with_name("torch_outputs.txt")
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
