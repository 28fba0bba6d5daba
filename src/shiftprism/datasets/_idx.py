"""MNIST and Fashion-MNIST: idx files, plain (memory-mapped) or gzipped."""

import gzip
import struct
import zlib
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from shiftprism._npz import damage_error
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._safe import Bytes, gunzip, map_bytes

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
MNIST_NAMES = tuple("0123456789")
FASHION_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_MOST = 60_000


def load_idx(folder: Path, split: str, names: tuple[str, ...]) -> Dataset:
    """The images and labels of one split: 28 × 28, grey, ten classes."""
    images_path, labels_path = (_find_file(folder / name) for name in FILES[split])
    images = _read_array(images_path, (28, 28))
    labels = _read_array(labels_path, ())
    if len(images) != len(labels):
        problem = f"it counts {len(labels)} labels where {images_path.name} counts {len(images)} images"
        raise damage_error(labels_path, 4, problem)
    if labels.max() > 9:
        row = int((labels > 9).argmax())
        raise damage_error(labels_path, 8 + row, f"image {row} has label {labels[row]} where there are 10 classes")
    return Dataset(torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64)), names)


def _find_file(path: Path) -> Path:
    """The file, plain or gzipped."""
    zipped = path.with_name(f"{path.name}.gz")
    if not path.is_file() and not zipped.is_file():
        raise FileNotFoundError(f"{path} is missing, plain or as {zipped.name}; put it beside the others.")
    return path if path.is_file() else zipped


def _read_array(path: Path, each: tuple[int, ...]) -> Bytes:
    """uint8 (N, *each). Magic number, counts and length are all checked before the content is read."""
    start = 8 + 4 * len(each)
    header = _read_header(path, start)
    magic, count, *sides = struct.unpack(f">{start // 4}I", header)
    # 0x08 is the type uint8; the last byte is the number of axes, 1 for labels and 3 for images.
    expected = 0x0801 + 2 * bool(each)
    if magic != expected:
        raise damage_error(path, 0, f"magic number {magic:#010x} where {expected:#010x} begins such a file")
    if tuple(sides) != each:
        raise damage_error(path, 8, f"images of {' × '.join(map(str, sides))} where 28 × 28 should be")
    if not 0 < count <= _MOST:
        raise damage_error(path, 4, f"it claims {count} items where at most {_MOST} can belong to it")
    size = start + count * int(np.prod(each, dtype=int))
    content = gunzip(path, size) if path.suffix == ".gz" else map_bytes(path, size)
    return content[start:].reshape(count, *each)


def _read_header(path: Path, size: int) -> bytes:
    with path.open("rb") as raw:
        try:
            with gzip.open(raw) if path.suffix == ".gz" else nullcontext(raw) as stream:
                header = stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise damage_error(path, raw.tell(), f"the gzip stream is broken ({error})") from error
    if len(header) != size:
        raise damage_error(path, path.stat().st_size, "it is cut in its header")
    return header
