"""record_images.py: writes the images of files/ with Pillow, ImageMagick and torchvision, and prints the hash of the pixels that
Pillow decodes of each: Image.open(file).convert("RGB"). image_decoder.cpp compares dptk's with it. Recorded with Pillow 11.3
(libjpeg-turbo 3.1), ImageMagick 6.9.11 and torchvision 0.29.

Each line is: file, width, height, and the FNV-1a hash of the pixels."""

import pathlib
import subprocess
import sys

from PIL import Image, features

folder = pathlib.Path(__file__).parent / "files"
folder.mkdir(exist_ok=True)
WIDTH, HEIGHT = 37, 29


def picture(mode):
    pixels = bytes((7 * x + 13 * y + 29 * c + 3 * x * y // 4) % 256 if x < 20 else (5 * x + 40 * c) % 256
                   for y in range(HEIGHT) for x in range(WIDTH) for c in range(3))
    return Image.frombytes("RGB", (WIDTH, HEIGHT), pixels).convert(mode)


def with_pillow():
    rgb = picture("RGB")
    rgb.save(folder / "rgb.jpg", quality=90)
    rgb.save(folder / "rgb_444.jpg", quality=95, subsampling=0)
    rgb.save(folder / "rgb_422.jpg", quality=70, subsampling=1)
    rgb.save(folder / "progressive.jpg", quality=80, progressive=True)
    picture("L").save(folder / "gray.jpg")
    picture("CMYK").save(folder / "cmyk.jpg", quality=85)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    rgb.save(folder / "turned.jpg", exif=exif)
    rgb.save(folder / "rgb.png")
    picture("1").save(folder / "black_and_white.png")
    picture("L").save(folder / "gray.png")
    alpha = Image.linear_gradient("L").resize((WIDTH, HEIGHT))
    for mode, name in (("RGB", "rgba.png"), ("L", "gray_alpha.png")):
        image = picture(mode)
        image.putalpha(alpha)
        image.save(folder / name)
    palette = rgb.quantize(13)
    palette.save(folder / "palette.png")
    palette.save(folder / "palette_transparent.png", transparency=3)
    gray16 = bytes((7 * x + 13 * y) % (40 if x < 20 else 256) for y in range(HEIGHT) for x in range(2 * WIDTH))
    Image.frombytes("I;16B", (WIDTH, HEIGHT), gray16).convert("I;16").save(folder / "gray_16.png")


def with_image_magick():
    source = folder / "rgb.png"
    for name, *arguments in (("magick_progressive.jpg", "-interlace", "JPEG"),
                             ("magick_gray.jpg", "-colorspace", "Gray"),
                             ("magick_cmyk.jpg", "-colorspace", "CMYK"),
                             ("magick_422.jpg", "-sampling-factor", "2x1"),
                             ("magick_interlaced.png", "-interlace", "PNG"),
                             ("magick_rgb_16.png", "-blur", "0x1", "-depth", "16", "-define", "png:bit-depth=16"),
                             ("magick_gray_4.png", "-colorspace", "Gray", "-depth", "4"),
                             ("magick_gray_2.png", "-colorspace", "Gray", "-depth", "2"),
                             ("magick_palette.png", "-colors", "7", "-type", "Palette")):
        subprocess.run(["convert", source, *arguments, "-strip", folder / name], check=True)


def with_torchvision():
    import torch
    from torchvision.io import write_jpeg, write_png
    pixels = torch.frombuffer(bytearray(picture("RGB").tobytes()), dtype=torch.uint8)
    pixels = pixels.reshape(HEIGHT, WIDTH, 3).permute(2, 0, 1).contiguous()
    write_jpeg(pixels, str(folder / "torchvision.jpg"), 60)
    write_png(pixels, str(folder / "torchvision.png"))


def fnv1a(data):
    result = 0xCBF29CE484222325
    for byte in data:
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return result


if sys.argv[1:] == ["--write"]:
    with_pillow()
    with_image_magick()
    with_torchvision()
print("libjpeg-turbo", features.version("libjpeg_turbo"), file=sys.stderr)
for path in sorted(folder.iterdir()):
    image = Image.open(path).convert("RGB")
    print(path.name, *image.size, fnv1a(image.tobytes()))
