"""record_npy.py FOLDER: writes the .npy files that npy.cpp reads. Recorded with NumPy 2.

In row-major order, element k of an array is k, minus 3 for signed types, and plus k * 1j for complex ones. Booleans alternate,
from False on."""

import sys

import numpy as np

SHAPES = {"scalar": (), "vector": (7,), "matrix": (2, 3), "cube": (2, 3, 4), "empty": (0, 3)}


def elements(dtype, shape):
    k = np.arange(int(np.prod(shape))).reshape(shape)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return (k % 2 == 1).astype(dtype)
    if kind == "c":
        return (k + 1j * k).astype(dtype)
    return (k if kind == "u" else k - 3).astype(dtype)


folder = sys.argv[1]
for name in ("?", "i1", "u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8", "<f2", ">f2", "<f4",
             ">f4", "<f8", ">f8", "<c8", ">c8", "<c16", ">c16"):
    text = name.replace("<", "little_").replace(">", "big_").replace("?", "bool")
    np.save(f"{folder}/{text}.npy", elements(name, SHAPES["matrix"]))
for name, shape in SHAPES.items():
    np.save(f"{folder}/{name}.npy", elements("<i4", shape))
    if shape:
        np.save(f"{folder}/{name}_fortran.npy", np.asfortranarray(elements("<i4", shape)))
for major in (1, 2, 3):
    with open(f"{folder}/version_{major}.npy", "wb") as file:
        np.lib.format.write_array(file, elements("<i4", (2, 3)), version=(major, 0))
np.save(f"{folder}/text.npy", np.array(["a", "bc"]))
np.save(f"{folder}/struct.npy", np.zeros(2, dtype=[("x", "<i4"), ("y", "<f4")]))
np.save(f"{folder}/object.npy", np.array([1, "a"], dtype=object), allow_pickle=True)
