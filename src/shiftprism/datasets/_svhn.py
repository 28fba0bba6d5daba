"""SVHN: the cropped 32 × 32 digits, as MATLAB 5 files.

This file has its own reader for the few elements of the format that hold arrays of numbers, because scipy's reader
crashes on damaged files. The publisher has 73,257 digits to train and 26,032 to test. A file with fewer is read too;
`describe_subset` and `shiftprism data check` then call it a subset.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shiftprism._npz import damage_error
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._safe import Bytes

NAMES = tuple("0123456789")
_HEADER = 128
_MOST = 100_000 * 3072  # no matrix has more bytes: the training set has 73,257 images
# The format's numbers for kinds of elements, and for types of numbers.
_COMPRESSED, _MATRIX = 15, 14
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


def load_svhn(path: Path) -> Dataset:
    """The images X (32, 32, 3, N), memory-mapped if not compressed, and labels y (N, 1), where 10 is the digit 0."""
    matrices = {matrix.name: matrix for matrix in _matrices(path)}
    if not {"X", "y"} <= set(matrices):
        problem = f"it holds {', '.join(sorted(matrices)) or 'nothing'} where X and y belong"
        raise damage_error(path, path.stat().st_size, problem)
    (shape, pixels), (_, labels) = matrices["X"][1:3], matrices["y"][1:3]
    if shape[:3] != (32, 32, 3) or len(shape) != 4 or pixels.dtype != np.uint8 or len(labels) != shape[3]:
        got = f"X is {pixels.dtype} {shape} and y has {len(labels)} numbers"
        raise damage_error(path, matrices["X"].byte, f"{got}, where bytes (32, 32, 3, N) and N numbers belong")
    bad = np.flatnonzero(~np.isin(labels, np.arange(1, 11)))
    if bad.size:
        problem = f"image {bad[0]} has label {labels[bad[0]]}, which is not 1 to 10 (10 is the digit 0)"
        raise damage_error(path, matrices["y"].byte, problem)
    # MATLAB's first index varies fastest, so in memory an image is (channel, column, row).
    images = torch.from_numpy(pixels.reshape(-1, 3, 32, 32)).transpose(2, 3)
    return Dataset(images, torch.from_numpy(labels.astype(np.int64) % 10), NAMES)


class _Matrix(NamedTuple):
    name: str
    shape: tuple[int, ...]
    numbers: NDArray[Any]
    byte: int
    """Where in the file it begins."""


class _Element(NamedTuple):
    kind: int
    content: Bytes
    after: int
    """Where the next one begins."""


def _matrices(path: Path) -> Iterator[_Matrix]:
    """Every array of numbers in the file. The elements must fill the file to the last byte."""
    content = np.memmap(path, np.uint8, "c") if path.stat().st_size else np.empty(0, np.uint8)
    order = {b"IM": "<", b"MI": ">"}.get(content[126:_HEADER].tobytes())
    if order is None:
        raise damage_error(path, min(content.size, 126), "not the header of a MATLAB 5 file")
    place = _HEADER
    while place < content.size:
        outer = element = _read_element(path, content, place, place, order)
        if element.kind == _COMPRESSED:
            element = _read_element(path, _inflate(path, element.content, place), 0, place, order)
        if element.kind == _MATRIX:
            yield _read_matrix(path, element.content, place, order)
        place = outer.after


def _read_element(path: Path, content: Bytes, place: int, byte: int, order: str) -> _Element:
    """The element at `place`: a tag with kind and length, then its bytes. An error names the `byte` of the file."""
    if place + 8 > content.size:
        raise damage_error(path, byte, "it is cut in the tag of an element")
    kind, size = struct.unpack(f"{order}2I", content[place : place + 8].tobytes())
    start, after = place + 8, place + 8 + size
    if kind >> 16:  # a small element: length and bytes are all in the eight bytes of the tag
        kind, size, start, after = kind & 0xFFFF, kind >> 16, place + 4, place + 8
    if start + size > content.size or (start == place + 4 and size > 4):
        raise damage_error(path, byte, f"an element claims {size} bytes where {content.size - start} are left")
    return _Element(kind, content[start : start + size], after)


def _inflate(path: Path, content: Bytes, byte: int) -> Bytes:
    stream = zlib.decompressobj()
    try:
        # 1,024 bytes are more than enough for the headers of a matrix.
        out = bytearray(stream.decompress(content.tobytes(), _MOST + 1024))
    except zlib.error as error:
        raise damage_error(path, byte, f"a compressed element is broken ({error})") from error
    if not stream.eof:
        raise damage_error(path, byte, f"a compressed element is cut, or unpacks to more than {_MOST} bytes")
    return np.frombuffer(out, np.uint8)


def _read_matrix(path: Path, content: Bytes, byte: int, order: str) -> _Matrix:
    """Flags, dimensions, name and numbers, one after another, each padded to eight bytes."""
    parts, place = [], 0
    for _ in range(4):
        parts.append(_read_element(path, content, place, byte, order))
        place = -(-parts[-1].after // 8) * 8
    _, sides, name, numbers = parts
    shape = tuple(np.frombuffer(sides.content.tobytes(), f"{order}i4").tolist()) if sides.content.size % 4 == 0 else ()
    # Python integers: the product of a claimed shape may overflow int64.
    size = int(np.prod(shape, dtype=object)) if shape and min(shape) > 0 else -1
    kind = np.dtype(f"{order}{_TYPES.get(numbers.kind, 'V1')}")
    if kind.kind == "V" or size * kind.itemsize != numbers.content.size:
        problem = f"a matrix of shape {shape} has {numbers.content.size} bytes of type {numbers.kind}"
        raise damage_error(path, byte, problem)
    return _Matrix(name.content.tobytes().decode("latin-1"), shape, numbers.content.view(kind), byte)
