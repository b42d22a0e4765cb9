#!/usr/bin/python3
"""Writes torch_operations.txt: what PyTorch computes, in double precision, for the cases of operation_cases.hpp, to ten digits.

For batches of 3 and 1, after a step in training: the output, the gradients of input and parameters, and the buffers; and then
the output in evaluation. Recorded with PyTorch 2.15.
"""

import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from record_torch import pattern


class Net(nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


class Residual(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        if stride != 1:
            self.downsample = nn.Conv2d(inputs, channels, 1, stride, bias=False)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


def split_attention(_, x):
    n, channels = x.shape[:2]
    means = x.mean((2, 3)).reshape(n, 2, channels // 2)
    weights = F.softmax(means, dim=1).reshape(n, channels, 1, 1)
    return (x * weights).reshape(n, 2, channels // 2, *x.shape[2:]).sum(1)


def fan_out(net, x):
    y = net.a(x)
    z = torch.sigmoid(y)
    return F.relu(y + z + z * y)


def sums(_, x):
    y = torch.sigmoid(x)
    z = torch.sigmoid(y)
    return z + (z + (y + (y + z)))


CASES = {
    "linear": (Net(lambda net, x: net.a(x), a=nn.Linear(5, 3)), (5,)),
    "linear_no_bias": (Net(lambda net, x: net.a(x), a=nn.Linear(5, 3, bias=False)), (5,)),
    "conv": (Net(lambda net, x: net.a(x), a=nn.Conv2d(3, 2, 3, padding=1)), (3, 5, 4)),
    "conv_rectangular": (Net(lambda net, x: net.a(x), a=nn.Conv2d(
        4, 6, (3, 2), (2, 1), (1, 2), (2, 3), groups=2, bias=False)), (4, 7, 5)),
    "conv_depthwise": (Net(lambda net, x: net.a(x), a=nn.Conv2d(3, 3, 3, 2, 1, groups=3)), (3, 4, 5)),
    "conv_padding": (Net(lambda net, x: net.a(x), a=nn.Conv2d(2, 2, 2, 3, 3)), (2, 4, 5)),
    "batch_norm": (Net(lambda net, x: net.a(x), a=nn.BatchNorm2d(3)), (3, 3, 5)),
    "relu": (Net(lambda _, x: F.relu(x)), (2, 3, 3)),
    "relu6": (Net(lambda _, x: F.relu6(4 * x)), (2, 3, 3)),
    "conv_norm_relu6": (Net(lambda net, x: F.relu6(net.b(net.a(x))), a=nn.Conv2d(2, 5, 3, bias=False),
                            b=nn.BatchNorm2d(5)), (2, 5, 6)),
    "sigmoid": (Net(lambda _, x: torch.sigmoid(x)), (7,)),
    "silu": (Net(lambda net, x: F.silu(net.a(x)), a=nn.Conv2d(3, 2, 3)), (3, 4, 3)),
    "softmax": (Net(lambda _, x: F.softmax(x, dim=1)), (7,)),
    "softmax_image": (Net(lambda _, x: F.softmax(x, dim=1)), (4, 2, 3)),
    "split_attention": (Net(split_attention), (6, 2, 3)),
    "max_pool": (Net(lambda _, x: F.max_pool2d(x, 3, 2, 1)), (3, 4, 5)),
    "max_pool_rectangular": (Net(lambda _, x: F.max_pool2d(x, (2, 3), (1, 2))), (2, 5, 6)),
    "avg_pool": (Net(lambda _, x: F.avg_pool2d(x, (3, 2), 2, 1)), (2, 5, 6)),
    "global_avg_pool": (Net(lambda _, x: F.adaptive_avg_pool2d(x, 1)), (3, 4, 5)),
    "flatten": (Net(lambda net, x: net.a(torch.flatten(x, 1)), a=nn.Linear(12, 2)), (3, 2, 2)),
    "flatten_last": (Net(lambda net, x: torch.flatten(net.a(x), 1), a=nn.Conv2d(2, 3, 3)), (2, 3, 4)),
    "gates": (Net(lambda _, x: x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1))), (3, 2, 2)),
    "square": (Net(lambda _, x: x * x), (3, 2, 2)),
    "double": (Net(lambda _, x: x + x), (2, 4, 4)),
    "fan_out": (Net(fan_out, a=nn.Conv2d(2, 2, 3, padding=1)), (2, 4, 4)),
    "sums": (Net(sums), (2, 4, 4)),
    "residual": (Net(lambda net, x: net.block3(net.block2(net.block1(x))), block1=Residual(4, 6, 2),
                     block2=Residual(6, 6, 1), block3=Residual(6, 6, 2)), (4, 6, 6)),
}

lines = []


def record(name, tensor):
    values = tensor.detach().reshape(-1).tolist()
    lines.append(" ".join([name, str(len(values))] + [f"{v:.10g}" for v in values]))


def record_case(name, model, sample, batch):
    model = model.double().train()
    norms = {id(module.weight) for module in model.modules() if isinstance(module, nn.BatchNorm2d)}
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    for i, parameter in enumerate(model.parameters()):
        values = pattern(i + 1, parameter.numel()) + (1 if id(parameter) in norms else 0)
        parameter.data = values.reshape(parameter.shape)
        parameter.grad = None
    shape = (batch, *sample)
    inputs = (8 * pattern(100, torch.Size(shape).numel())).reshape(shape).requires_grad_()
    outputs = model(inputs)
    outputs.backward(pattern(200, outputs.numel()).reshape(outputs.shape))
    case = f"{name}.{batch}"
    record(f"{case}/output", outputs)
    record(f"{case}/input_gradient", inputs.grad)
    for key, parameter in model.named_parameters():
        record(f"{case}/{key}", parameter.grad)
    for key, buffer in model.named_buffers():
        record(f"{case}/{key}", buffer)
    record(f"{case}/evaluated", model.eval()(inputs))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case_name, (case_model, case_sample) in CASES.items():
        for size in (3, 1):
            record_case(case_name, case_model, case_sample, size)
    path = pathlib.Path(__file__).with_name("torch_operations.txt")
    path.write_text("\n".join(lines) + "\n")
