"""record_unusual_images.py: makes images that decoders warn of, and damaged ones, and prints the hash of the pixels that Pillow
decodes of each: Image.open(file).convert("RGB"). image_decoder.cpp compares dptk's with it. Recorded with Pillow 13.0
(libjpeg-turbo 3.2). With --write it makes the files of unusual/ and damaged/.

Each line is: file, width, height, and the FNV-1a hash of the pixels. Files of damaged/ are those that Pillow refuses, whose line is
"file refused", and those that Pillow reads with pixels that are not in the file, whose line is "file filled"."""

import io
import pathlib
import struct
import sys
import warnings
import zlib

from PIL import Image

here = pathlib.Path(__file__).parent
WIDTH, HEIGHT = 37, 29


def picture(mode):
    pixels = bytes((7 * x + 13 * y + 29 * c + 3 * x * y // 4) % 256 if x < 20 else (5 * x + 40 * c) % 256
                   for y in range(HEIGHT) for x in range(WIDTH) for c in range(3))
    return Image.frombytes("RGB", (WIDTH, HEIGHT), pixels).convert(mode)


# JPEG: a list of segments, each with its marker; the one of SOS ends with the coded data.

def jpeg(mode="RGB", **options):
    out = io.BytesIO()
    picture(mode).save(out, "JPEG", **{"quality": 60, **options})
    data, at, parts = out.getvalue(), 2, []
    while at < len(data):
        size = 0 if data[at + 1] == 0xD9 else int.from_bytes(data[at + 2:at + 4], "big")
        end = at + 2 + size
        if data[at + 1] == 0xDA:  # up to the next marker that is no restart
            while data[end] != 0xFF or data[end + 1] == 0 or 0xD0 <= data[end + 1] <= 0xD7:
                end += 1
        parts.append(data[at:end])
        at = end
    return parts


def joined(parts):
    return b"\xff\xd8" + b"".join(parts)


def index(parts, marker):
    return next(i for i, part in enumerate(parts) if part[1] == marker)


def segment(marker, data):
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def inserted(parts, marker, data):
    """Inserts bytes before the first segment with this marker."""
    at = index(parts, marker)
    return joined(parts[:at] + [data] + parts[at:])


def replaced(parts, marker, data):
    at = index(parts, marker)
    return joined(parts[:at] + [data] + parts[at + 1:])


def changed(parts, marker, offset, *values):
    """Replaces bytes of the first segment with this marker."""
    part = bytearray(parts[index(parts, marker)])
    part[offset:offset + len(values)] = bytes(values)
    return replaced(parts, marker, bytes(part))


def with_restarts():
    return jpeg(restart_marker_blocks=1)


def in_scan(parts, marker, replacement):
    at = index(parts, 0xDA)
    assert marker in parts[at]
    return joined(parts[:at] + [parts[at].replace(marker, replacement, 1)] + parts[at + 1:])


def with_scan_twice():
    parts = jpeg(progressive=True)
    at = index(parts, 0xDA)
    return joined(parts[:at + 1] + parts[at:])


def unusual_jpegs():
    rgb, gray, cmyk = jpeg(), jpeg("L"), jpeg("CMYK")
    whole = joined(rgb)
    adobe = lambda transform: segment(0xEE, b"Adobe\x00\x64\0\0\0\0" + bytes([transform]))
    at = index(rgb, 0xDA)
    return {
        "jfif_major_0": changed(rgb, 0xE0, 9, 0),
        "jfif_major_7": changed(rgb, 0xE0, 9, 7, 9),
        "jfif_unit_9": changed(rgb, 0xE0, 11, 9, 0, 0, 0, 0),
        "jfif_short": replaced(rgb, 0xE0, segment(0xE0, b"JFIF\0\1\1")),
        "jfif_thumbnail_missing": changed(rgb, 0xE0, 16, 200, 100),
        "junk_before_end": inserted(rgb, 0xD9, b"\x12\x34\x56" * 20),
        "junk_before_tables": inserted(rgb, 0xDB, b"\x12\x34\x56"),
        "junk_before_frame": inserted(rgb, 0xC0, b"\0\0\0\0"),
        "junk_before_scan": inserted(rgb, 0xDA, b"\xff\0\xff\0"),
        "junk_before_restart": in_scan(with_restarts(), b"\xff\xd2", b"\x77" * 30 + b"\xff\xd2"),
        "fill_bytes": inserted(rgb, 0xC4, b"\xff\xff\xff\xff"),
        "junk_after_end": whole + b"junk" * 300,
        "zeros_after_end": whole + bytes(1000),
        "two_images": whole + joined(gray),
        "two_ends": whole + b"\xff\xd9",
        "adobe_transform_7": inserted(rgb, 0xDB, adobe(7)),
        "adobe_transform_0_with_jfif": inserted(rgb, 0xDB, adobe(0)),
        "adobe_transform_7_without_jfif": replaced(rgb, 0xE0, adobe(7)),
        "adobe_transform_9_cmyk": changed(cmyk, 0xEE, 15, 9),
        "adobe_short": replaced(rgb, 0xE0, segment(0xEE, b"Adobe\0\x64")),
        "scan_end_of_spectrum": joined(rgb[:at] + [rgb[at][:12] + b"\x3e" + rgb[at][13:]] + rgb[at + 1:]),
        "scan_approximation": joined(rgb[:at] + [rgb[at][:13] + b"\x11" + rgb[at][14:]] + rgb[at + 1:]),
        "scan_twice": with_scan_twice(),
        "exif_damaged": inserted(rgb, 0xDB, segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff")),
        "icc_part_missing": inserted(rgb, 0xDB, segment(0xE2, b"ICC_PROFILE\0\1\3abc")),
        "photoshop_damaged": inserted(rgb, 0xDB, segment(0xED, b"Photoshop 3.0\0" + b"8BIM\3\xed\0\0\0\0")),
        "empty_comment": inserted(rgb, 0xDB, segment(0xFE, b"")),
        "component_names_rgb": joined([p for p in jpeg(subsampling=0) if p[1] != 0xE0]).replace(
            b"\3\1\x11\0\2\x11\1\3\x11\1", b"\3R\x11\0G\x11\1B\x11\1").replace(
            b"\3\1\0\2\x11\3\x11", b"\3R\0G\x11B\x11"),
        "component_names_0": joined([p for p in jpeg(subsampling=0) if p[1] != 0xE0]).replace(
            b"\3\1\x11\0\2\x11\1\3\x11\1", b"\3\0\x11\0\1\x11\1\2\x11\1").replace(
            b"\3\1\0\2\x11\3\x11", b"\3\0\0\1\x11\2\x11"),
        "gray_sampling_2": changed(gray, 0xC0, 11, 0x22),
        "tables_before_image": b"\xff\xd8" + b"".join(p for p in rgb if p[1] in (0xDB, 0xC4)) + b"\xff\xd9" + whole,
    }


def damaged_jpegs():
    rgb, restarts, progressive = jpeg(), with_restarts(), jpeg(progressive=True)
    whole = joined(rgb)
    scan = rgb[index(rgb, 0xDA)]
    half = len(scan) // 2
    return {
        "half": whole[:len(whole) - half],
        "half_with_end": replaced(rgb, 0xDA, scan[:half]),
        "half_with_restart_as_end": replaced(rgb, 0xDA, scan[:half] + b"\xff\xd0"),
        "half_progressive": joined(progressive)[:len(joined(progressive)) // 2],
        "codes": replaced(rgb, 0xDA, scan[:half] + b"\xff\0" * 30 + scan[half + 60:]),
        "zeros": replaced(rgb, 0xDA, scan[:half] + bytes(half)),
        "restart_missing": in_scan(restarts, b"\xff\xd1", b""),
        "restart_wrong": in_scan(restarts, b"\xff\xd1", b"\xff\xd0"),
        "start_twice": inserted(rgb, 0xDB, b"\xff\xd8"),
        "no_frame": replaced(rgb, 0xC0, b""),
        "no_scan": replaced(rgb, 0xDA, b""),
        "no_tables": joined([p for p in rgb if p[1] != 0xDB]),
        "two_components": changed(rgb, 0xC0, 9, 2),
        "twelve_bits": changed(rgb, 0xC0, 4, 12),
        "cut_in_comment": inserted(rgb, 0xDA, segment(0xFE, bytes(50)))[:len(whole) - len(scan)],
    }


# PNG

def chunk(name, data, crc=None):
    crc = zlib.crc32(name + data) if crc is None else crc
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)


def image_data(mode, bits=8):
    """Returns the rows, each with its filter: none, sub, up, average or Paeth, of which each is decoded."""
    image = picture(mode)
    pixels, channels = image.tobytes(), len(image.getbands())
    rows = [pixels[y * WIDTH * channels:(y + 1) * WIDTH * channels] for y in range(HEIGHT)]
    if bits < 8:
        keep = (1 << bits) - 1
        rows = [int("".join(f"{value & keep:0{bits}b}" for value in row).ljust((WIDTH * bits + 7) // 8 * 8, "0"), 2)
                .to_bytes((WIDTH * bits + 7) // 8, "big") for row in rows]
    return b"".join(bytes([y % 5]) + row for y, row in enumerate(rows))


def png(color=2, before=b"", data=None, bits=8, after=b"", end=None, idat=None, header=None, width=WIDTH, height=HEIGHT):
    mode = {0: "L", 2: "RGB", 3: "L", 4: "LA", 6: "RGBA"}[color]
    data = zlib.compress(image_data(mode, bits)) if data is None else data
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0) if header is None else header
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + (chunk(b"IDAT", data) if idat is None else idat)
            + after + (chunk(b"IEND", b"") if end is None else end))


def palette(colors):
    return bytes((31 * i + 11 * (i % 7) * c + c) % 256 for i in range(colors) for c in range(3))


def pieces(data, size):
    return b"".join(chunk(b"IDAT", data[i:i + size]) for i in range(0, len(data), size))


def unusual_pngs():
    data = zlib.compress(image_data("RGB"))
    plte = lambda colors: chunk(b"PLTE", palette(colors))
    header = lambda *rest: struct.pack(">IIBB", WIDTH, HEIGHT, 8, 2) + bytes(rest)
    return {
        "extra_after_zlib": png(data=data + b"more data"),
        "extra_chunk_of_data": png(idat=chunk(b"IDAT", data) + chunk(b"IDAT", b"more data")),
        "too_many_rows": png(data=zlib.compress(image_data("RGB") * 2)),
        "no_checksum_of_data": png(data=data[:-4]),
        "no_end": png(end=b""),
        "end_cut": png(end=b"\0\0\0\0IE"),
        "end_checksum": png(end=chunk(b"IEND", b"", 1)),
        "end_twice": png(after=chunk(b"IEND", b"")),
        "junk_after_data": png(end=b"\xff" * 100),
        "junk_after_end": png() + b"junk" * 300,
        "data_checksum": png(idat=chunk(b"IDAT", data, 1)),
        "text_after_data_checksum": png(after=chunk(b"tEXt", b"a\0b", 1)),
        "unknown_after_data": png(after=chunk(b"ABCD", b"unknown and critical")),
        "unknown_before_data": png(before=chunk(b"ABCD", b"unknown and critical")),
        "name_reserved_bit": png(before=chunk(b"abcd", b"unknown")),
        "empty_data_chunks": png(idat=chunk(b"IDAT", b"") + chunk(b"IDAT", data[:9]) + chunk(b"IDAT", b"") * 3
                                 + chunk(b"IDAT", data[9:])),
        "data_in_bytes": png(idat=pieces(data[:40], 1) + pieces(data[40:], 1000)),
        "gray_with_palette": png(0, before=plte(20)),
        "gray_alpha_with_palette": png(4, before=plte(20)),
        "rgb_with_palette_of_5_bytes": png(before=chunk(b"PLTE", b"12345")),
        "palette_short": png(3, before=plte(100)),
        "palette_of_8_bytes": png(3, before=chunk(b"PLTE", palette(3)[:8])),
        "palette_4_bits_short": png(3, before=plte(5), bits=4),
        "palette_4_bits_long": png(3, before=plte(30), bits=4),
        "palette_1_bit_long": png(3, before=plte(3), bits=1),
        "palette_twice": png(3, before=plte(256) + plte(30)),
        "transparency_long": png(3, before=plte(10) + chunk(b"tRNS", bytes(range(200)))),
        "transparency_before_palette": png(3, before=chunk(b"tRNS", bytes(range(9))) + plte(256)),
        "transparency_in_rgba": png(6, before=chunk(b"tRNS", b"\0\1\0\2\0\3")),
        "transparency_large": png(before=chunk(b"tRNS", b"\xff\xff\xff\xff\xff\xff")),
        "gamma_0": png(before=chunk(b"gAMA", bytes(4))),
        "gamma_twice": png(before=chunk(b"gAMA", struct.pack(">I", 45455)) * 2),
        "chromaticity_0": png(before=chunk(b"cHRM", bytes(32))),
        "srgb_9": png(before=chunk(b"sRGB", b"\x09")),
        "profile_damaged": png(before=chunk(b"iCCP", b"icc\0\0" + b"no zlib stream")),
        "significant_bits_99": png(before=chunk(b"sBIT", b"\x63\x63\x63")),
        "background_of_1_byte": png(before=chunk(b"bKGD", b"1")),
        "histogram_without_palette": png(before=chunk(b"hIST", bytes(40))),
        "physical_unit_9": png(before=chunk(b"pHYs", bytes(8) + b"\x09")),
        "time_of_1_byte": png(before=chunk(b"tIME", b"1")),
        "text_without_name": png(before=chunk(b"tEXt", b"\0text") + chunk(b"tEXt", b"no separator")),
        "text_zlib_damaged": png(before=chunk(b"zTXt", b"a\0\0no zlib stream")),
        "exif_damaged": png(before=chunk(b"eXIf", b"no exif")),
        "compression_7": png(header=header(7, 0, 0)),
        "header_long": png(header=header(0, 0, 0, 1, 2, 3)),
        "header_twice": png(before=chunk(b"IHDR", header(0, 0, 0))),
        "header_after_text": png().replace(chunk(b"IHDR", header(0, 0, 0)),
                                           chunk(b"tEXt", b"a\0b") + chunk(b"IHDR", header(0, 0, 0))),
        "zlib_window_small": png(data=b"\x18\x19" + data[2:]),
        "animation_without_frames": png(before=chunk(b"acTL", bytes(8))),
    }


def damaged_pngs():
    data = zlib.compress(image_data("RGB"))
    rows = image_data("RGB")
    header = lambda *rest: struct.pack(">IIBB", WIDTH, HEIGHT, 8, 2) + bytes(rest)
    one_row = 1 + 3 * WIDTH
    return {
        "half": png()[:len(png()) // 2],
        "half_with_end": png(data=data[:len(data) // 2]),
        "half_of_rows": png(data=zlib.compress(rows[:14 * one_row])),
        "half_of_a_row": png(data=zlib.compress(rows[:14 * one_row + 50])),
        "data_interrupted": png(idat=chunk(b"IDAT", data[:200]) + chunk(b"tEXt", b"a\0b") + chunk(b"IDAT", data[200:])),
        "no_data": png(idat=b""),
        "no_header": png().replace(b"IHDR", b"IHDS"),
        "codes": png(data=data[:100] + b"\xff" * 50 + data[150:]),
        "no_zlib": png(data=data[2:]),
        "filter_7": png(data=zlib.compress(b"\7" + rows[1:])),
        "header_checksum": png(header=header(0, 0, 0)).replace(chunk(b"IHDR", header(0, 0, 0)),
                                                               chunk(b"IHDR", header(0, 0, 0), 1)),
        "header_filter_1": png(header=header(0, 1, 0)),
        "header_short": png(header=header(0, 0)),
        "depth_16_palette": png(3, header=struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, 3, 0, 0, 0)),
        "header_depth_3": png(header=struct.pack(">IIBBBBB", WIDTH, HEIGHT, 3, 0, 0, 0, 0)),
        "palette_checksum": png(3, before=chunk(b"PLTE", palette(256), 1)),
        "palette_none": png(3),
        "palette_empty": png(3, before=chunk(b"PLTE", b"")),
        "palette_after_data": png(3, after=chunk(b"PLTE", palette(256))),
        "palette_4_bits_none": png(3, bits=4),
        "palette_of_300": png(3, before=chunk(b"PLTE", palette(300))),
        "text_checksum": png(before=chunk(b"tEXt", b"a\0b", 1)),
        "chunk_name": png(before=chunk(b"\1\2\3\4", b"")),
        "text_after_data_cut": png(after=struct.pack(">I", 100) + b"tEXtabc", end=b""),
        "gamma_of_1_byte": png(before=chunk(b"gAMA", b"1")),
        "transparency_of_1_byte": png(before=chunk(b"tRNS", b"1")),
    }


FILLED = {  # their pixels are not in the file; Pillow puts others in their place, and does not say so
    "half_with_end.jpg", "half_with_restart_as_end.jpg", "codes.jpg", "zeros.jpg", "restart_missing.jpg", "restart_wrong.jpg",
    "half_of_rows.png", "palette_none.png", "palette_empty.png", "palette_after_data.png",
    "palette_4_bits_none.png",
}


def fnv1a(data):
    result = 0xCBF29CE484222325
    for byte in data:
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return result


if sys.argv[1:] == ["--write"]:
    for name, images in (("unusual", (unusual_jpegs, unusual_pngs)), ("damaged", (damaged_jpegs, damaged_pngs))):
        (here / name).mkdir(exist_ok=True)
        for make, ending in zip(images, (".jpg", ".png")):
            for file, data in make().items():
                (here / name / (file + ending)).write_bytes(data)
warnings.simplefilter("ignore")
for path in sorted([*(here / "unusual").iterdir(), *(here / "damaged").iterdir()]):
    name = f"{path.parent.name}/{path.name}"
    try:
        image = Image.open(path).convert("RGB")
        print(name, "filled" if path.name in FILLED and "damaged/" in name else
              f"{image.size[0]} {image.size[1]} {fnv1a(image.tobytes())}")
    except (OSError, SyntaxError, ValueError) as error:
        print(name, "refused")
        print(name, error, file=sys.stderr)
