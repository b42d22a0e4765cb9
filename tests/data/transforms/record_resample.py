"""record_resample.py: prints, for images of several sizes, the hash of the image that Pillow's resize() returns. resample.cpp
compares dptk's with it. Recorded with Pillow 11.3.

Pixel (x, y) has (7 x + 13 y + 29 c + 3 x y) % 256 in channel c, or 255 or 0 if `sharp`: if that is above 127 or not. Each line
is: width, height, channels, sharp, new width, new height, and the FNV-1a hash of the result."""

import random

from PIL import Image

random.seed(1)


def pixels(width, height, channels, sharp):
    values = [(7 * x + 13 * y + 29 * c + 3 * x * y) % 256
              for y in range(height) for x in range(width) for c in range(channels)]
    return bytes(255 * (value > 127) if sharp else value for value in values)


def fnv1a(data):
    result = 0xCBF29CE484222325
    for byte in data:
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return result


SIZES = [(1, 1, 1, 0, 5, 7), (5, 7, 3, 1, 1, 1), (224, 224, 3, 0, 224, 224), (500, 375, 3, 1, 224, 224),
         (28, 28, 1, 0, 32, 32)]
for _ in range(40):
    SIZES.append((*(random.randrange(1, 90) for _ in range(2)), random.choice((1, 3)), random.randrange(2),
                  *(random.randrange(1, 90) for _ in range(2))))
for width, height, channels, sharp, to_width, to_height in SIZES:
    image = Image.frombytes("L" if channels == 1 else "RGB", (width, height), pixels(width, height, channels, sharp))
    out = image.resize((to_width, to_height), Image.Resampling.BILINEAR)
    print(width, height, channels, sharp, to_width, to_height, fnv1a(out.tobytes()))
