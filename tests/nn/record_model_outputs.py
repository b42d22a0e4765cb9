#!/usr/bin/python3
"""Writes torch_model_outputs.txt: what PyTorch computes, in double precision, for the models of torchvision and timm.

For a batch of 4 at 64 x 64 and of 1 (ResNeSt: 4) at 224 x 224: sum, norm and a projection, then the first five values, of the outputs in
evaluation and in training; the same three numbers of all running statistics after that step; norm and projection of the
gradient of each parameter, in the model's order. Recorded with PyTorch 2.15, torchvision 0.29 and timm 1.0.

The sensitivity of a gradient says how far it may be from this one in single precision, whatever the order of sums: the norm
of its change if each activation and each gradient of an activation has a random relative error of up to 2^-21, the largest of
six. This includes ReLUs whose input is so close to 0 that rounding decides whether they are open.
"""

import pathlib

import numpy
import timm
import torch
import torchvision


def pattern(stream, count):
    """As in record_torch.py, and faster."""
    h = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + stream * 40503 + 12345).astype(numpy.uint32)
    h = (h ^ (h >> 15)) * numpy.uint32(2246822519)
    h = (h ^ (h >> 13)) * numpy.uint32(3266489917)
    return torch.from_numpy(((h >> 16).astype(numpy.float64) - 32768) / 131072)


def model_of(name):
    if name == "resnest50":
        return timm.create_model("resnest50d")
    return getattr(torchvision.models, name)(weights=None)


def set_parameters(model):
    """Values that float holds. Small factors and positive offsets in the batch norms keep most ReLUs open; otherwise rounding
    errors of float grow from layer to layer, in PyTorch as well, to 4 % of the gradients."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    ones, zeros = {id(module.weight) for module in norms}, {id(module.bias) for module in norms}
    fan_in = 1
    for i, parameter in enumerate(model.parameters()):
        values = pattern(i + 1, parameter.numel())
        if id(parameter) in ones:
            values = 0.3 + values / 2
        elif id(parameter) in zeros:
            values = 0.5 + values / 4
        else:
            if parameter.dim() > 1:  # a bias has the fan-in of the weight before it
                fan_in = parameter[0].numel()
            values = values * 8 / fan_in**0.5
        parameter.data = values.float().double().reshape(parameter.shape)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0


class Rounded(torch.autograd.Function):
    """Errors like those of rounding, forward and backward."""

    @staticmethod
    def forward(context, values):
        return values * (1 + 2**-21 * (2 * torch.rand_like(values) - 1))

    @staticmethod
    def backward(context, gradient):
        return gradient * (1 + 2**-21 * (2 * torch.rand_like(gradient) - 1))


def round_activations(model):
    """Lets all modules without submodules round."""
    for module in model.modules():
        if next(module.children(), None) is None:
            module.register_forward_hook(lambda module, inputs, output: Rounded.apply(output))


def summary(values):
    values = values.detach().reshape(-1)
    return [values.sum(), values.norm(), values @ pattern(300, values.numel())]


lines = []


def record(name, values, digits=9):
    lines.append(" ".join([name, str(len(values))] + [f"{float(v):.{digits}g}" for v in values]))


def record_model(name, batch, size):
    model = model_of(name).double()
    set_parameters(model)
    inputs = (4 * pattern(100, batch * 3 * size * size)).reshape(batch, 3, size, size)
    gradient = pattern(200, batch * 1000).reshape(batch, 1000) / 4
    for mode in ("evaluated", "trained"):
        outputs = model.train(mode == "trained")(inputs)
        record(f"{name}.{size}/{mode}", summary(outputs) + list(outputs.detach().reshape(-1)[:5]))
    outputs.backward(gradient)
    statistics = [buffer.reshape(-1) for key, buffer in model.named_buffers() if "running" in key]
    record(f"{name}.{size}/statistics", summary(torch.cat(statistics)))
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    record(f"{name}.{size}/gradients", [value for one in gradients for value in summary(one)[1:]])
    round_activations(model)
    changes = [0.0] * len(gradients)
    for seed in range(6):
        torch.manual_seed(seed)
        model.zero_grad()
        model(inputs).backward(gradient)
        for i, parameter in enumerate(model.parameters()):
            changes[i] = max(changes[i], float((parameter.grad - gradients[i]).norm()))
    record(f"{name}.{size}/sensitivity", changes, digits=2)


if __name__ == "__main__":
    for model_name in ("resnet18", "resnet34", "resnet50", "resnest50", "mobilenet_v2"):
        record_model(model_name, 4, 64)
        # The batch norms of ResNeSt's split attention have one value for each sample, and refuse a batch of 1.
        record_model(model_name, 4 if model_name == "resnest50" else 1, 224)
    path = pathlib.Path(__file__).with_name("torch_model_outputs.txt")
    path.write_text("\n".join(lines) + "\n")
