"""record_transforms.py: prints the hashes of the images that torchvision's transforms return, with given parameters.
image_transforms.cpp compares dptk's with them. Recorded with torchvision 0.29 and Pillow 11.3.

Pixel (x, y) has (7 x + 13 y + 29 c + 3 x y) % 256 in channel c. Each line is: width, height, transform, its parameters, and the
FNV-1a hash of the result: of its bytes, or of the f32 values of shape [channels, height, width] for `normalize`."""

import random

from PIL import Image
import torch
from torchvision.transforms import functional

random.seed(2)


def picture(width, height):
    values = bytes((7 * x + 13 * y + 29 * c + 3 * x * y) % 256
                   for y in range(height) for x in range(width) for c in range(3))
    return Image.frombytes("RGB", (width, height), values)


def fnv1a(data):
    result = 0xCBF29CE484222325
    for byte in data:
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return result


for _ in range(30):
    width, height = random.randrange(5, 80), random.randrange(5, 80)
    image = picture(width, height)
    side = random.randrange(4, 60)
    print(width, height, "resize", side, fnv1a(functional.resize(image, side).tobytes()))
    crop = random.randrange(3, 90), random.randrange(3, 90)
    print(width, height, "center_crop", *crop, fnv1a(functional.center_crop(image, crop).tobytes()))
    part_height, part_width = random.randrange(1, height + 1), random.randrange(1, width + 1)
    top, left = random.randrange(height - part_height + 1), random.randrange(width - part_width + 1)
    out = functional.resized_crop(image, top, left, part_height, part_width, [side, side])
    print(width, height, "resized_crop", top, left, part_height, part_width, side, fnv1a(out.tobytes()))
    print(width, height, "flip", fnv1a(functional.hflip(image).tobytes()))
    border = random.randrange(4)
    print(width, height, "pad", border, fnv1a(functional.pad(image, border).tobytes()))
    values = functional.to_tensor(image)
    print(width, height, "to_tensor", fnv1a(values.numpy().tobytes()))
    values = functional.normalize(values, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    print(width, height, "normalize", fnv1a(values.numpy().tobytes()))
