#!/usr/bin/python3
"""Writes torch_models.txt: for models of torchvision and timm, the number of entries in the state_dict, a hash of their names
and shapes in order, and the number of parameters. Recorded with torchvision 0.29 and timm 1.0; other versions have the same
models."""
import pathlib

import timm
from torchvision import models


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


lines = []
for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnest50", "mobilenet_v2"):
    model = timm.create_model("resnest50d") if name == "resnest50" else getattr(models, name)(weights=None)
    entries = [f"{key} [{', '.join(map(str, value.shape))}]\n" for key, value in model.state_dict().items()]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lines.append(f"{name} {len(entries)} {fnv1a(''.join(sorted(entries)))} {parameters}\n")
pathlib.Path(__file__).with_name("torch_models.txt").write_text("".join(lines))
