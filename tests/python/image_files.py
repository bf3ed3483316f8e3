"""Files of images that tests read."""
from __future__ import annotations

import pathlib
import struct
import zlib

import numpy as np


def png_file(pixels: np.ndarray) -> bytes:
    """A PNG file of u8 [height, width] or [height, width, 3]."""
    height, width = pixels.shape[:2]

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def image(n: int, size: int = 4) -> np.ndarray:
    """Image n of u8 [size, size, 3]."""
    return np.random.default_rng(n).integers(0, 256, (size, size, 3), np.uint8)


def write_folder(folder: pathlib.Path, classes: dict[str, int]) -> list[tuple[np.ndarray, int]]:
    """So many images for each class, in folders of their names. Returns the samples as a source has them."""
    samples = []
    for label, name in enumerate(sorted(classes)):
        (folder / name).mkdir(parents=True)
        for i in range(classes[name]):
            samples.append((image(len(samples)), label))
            (folder / name / f"{i:02}.png").write_bytes(png_file(samples[-1][0]))
    return samples
