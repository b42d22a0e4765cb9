"""check_tensorboard.py PROGRAM: writes a run that ends with half a record, and two runs that continue it, with PROGRAM, and
compares what TensorBoard's readers read with what was written. Exits with 77 if tensorboard is not installed."""
import math
import struct
import subprocess
import sys
import tempfile
import zlib

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"SKIPPED: {error}: PYTHON may name a Python with tensorboard")
    sys.exit(77)

program = sys.argv[1]
problems = []


def check(name, found, expected):
    if found != expected:
        problems.append(f"{name}: expected {expected}, found {found}")


def write(folder, begin, end, *resume):
    output = subprocess.run([program, folder, str(begin), str(end), *resume], check=True, capture_output=True, text=True)
    return output.stdout.strip()


def decode_png(data):
    """The width, height, channels and pixels of a PNG file without filters."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place:place + 8])
        content = data[place + 8:place + 8 + length]
        assert struct.unpack(">I", data[place + 8 + length:place + 12 + length])[0] == zlib.crc32(kind + content)
        chunks[kind] = content
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, bits, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels, rows = {0: 1, 2: 3}[color], zlib.decompress(chunks[b"IDAT"])
    size = width * channels + 1
    assert bits == 8 and len(rows) == height * size and not any(rows[::size])
    return width, height, channels, b"".join(rows[y * size + 1:(y + 1) * size] for y in range(height))


def pixels(count):
    return bytes(i * 7 % 251 for i in range(count))


with tempfile.TemporaryDirectory() as folder:
    folder += "/runs/one"
    paths = [write(folder, 0, 43)]
    with open(paths[0], "r+b") as file:  # as after a crash of the host
        file.seek(-10, 2)
        file.truncate()
    paths += [write(folder, 25, 60, "resume"), write(folder, 40, 81, "resume")]
    check("order of files", paths, sorted(set(paths)))

    reader = event_accumulator.EventAccumulator(folder, event_accumulator.STORE_EVERYTHING_SIZE_GUIDANCE).Reload()
    tags = {"scalars": ["inf", "nan", "test/Genauigkeit \u03b1 \U0001f600", "train/loss"], "images": ["color", "gray"], "tensors": ["options"]}
    check("tags", {kind: sorted(names) for kind, names in reader.Tags().items() if names}, tags)
    loss = reader.Scalars("train/loss")
    check("steps", [event.step for event in loss], list(range(81)))
    check("loss", [event.value for event in loss], [struct.unpack("f", struct.pack("f", 1 / (i + 1)))[0] for i in range(81)])
    check("steps in test", [event.step for event in reader.Scalars(tags["scalars"][2])], list(range(0, 81, 5)))
    check("nan", [(event.step, math.isnan(event.value)) for event in reader.Scalars("nan")], [(3, True)])
    check("inf", [(event.step, event.value) for event in reader.Scalars("inf")], [(3, -math.inf)])
    check("text", [(event.step, event.tensor_proto.string_val[0].decode()) for event in reader.Tensors("options")],
          [(step, "learning rate **0.1**, \u03b2 0.9") for step in (0, 25, 40)])
    for tag, size in (("gray", (5, 4, 1)), ("color", (301, 200, 3))):
        images = reader.Images(tag)
        check(f"steps of {tag}", [image.step for image in images], list(range(0, 81, 10)))
        for image in images:
            check(f"size of {tag}", (image.width, image.height), size[:2])
            check(f"image {tag}", decode_png(image.encoded_image_string), (*size, pixels(math.prod(size))))

    # The reader of TensorBoard itself.
    plugin = plugin_event_accumulator.EventAccumulator(folder, {"tensors": 0}).Reload()
    check("plugins", {tag: plugin.SummaryMetadata(tag).plugin_data.plugin_name for tag in plugin.Tags()["tensors"]},
          {name: "text" if kind == "tensors" else kind for kind, names in tags.items() for name in names})
    loss = plugin.Tensors("train/loss")
    check("TensorBoard's steps", [event.step for event in loss], list(range(81)))
    check("TensorBoard's last loss", float(tensor_util.make_ndarray(loss[-1].tensor_proto)), float(reader.Scalars("train/loss")[-1].value))
    check("TensorBoard's steps of color", [event.step for event in plugin.Tensors("color")], list(range(0, 81, 10)))

    # A tag that the continued run does not write again.
    write(folder, 2, 3, "resume")
    for name, values in (("EventAccumulator", reader.Reload().Scalars("nan")), ("TensorBoard", plugin.Reload().Tensors("nan"))):
        check(f"{name}: nan after a run that continues at step 2", [event.step for event in values], [])

print("\n".join(problems) or "TensorBoard reads each tag, step and image that was written")
sys.exit(bool(problems))
