"""CIFAR-10 and CIFAR-100: the publisher's binary and python files."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from shiftprism._npz import damage_error
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._pickles import read_pickle
from shiftprism.datasets._safe import Bytes, map_bytes, read_bytes, read_tar

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
_COARSE = 20  # the coarse classes of CIFAR-100
_MOST = 1 << 28  # no CIFAR archive unpacks to more than 256 MB


class Cifar(NamedTuple):
    """What differs between CIFAR-10 and CIFAR-100."""

    names: tuple[str, ...]
    batches: dict[str, tuple[str, ...]]
    """The files of each split."""
    label_bytes: int
    """In the binary files, before each image: CIFAR-100 has the coarse label and then the fine one."""
    binary: str
    """The folder inside the archive of binary files."""
    python: str
    """The folder inside the archive of pickled batches."""
    label_names: str
    """The file of class names beside the binary files."""


CIFAR10 = Cifar(
    names=CIFAR10_NAMES,
    batches={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    label_bytes=1,
    binary="cifar-10-batches-bin",
    python="cifar-10-batches-py",
    label_names="batches.meta.txt",
)
CIFAR100 = Cifar(
    names=CIFAR100_NAMES,
    batches={"train": ("train",), "test": ("test",)},
    label_bytes=2,
    binary="cifar-100-binary",
    python="cifar-100-python",
    label_names="fine_label_names.txt",
)


def load_binary(kind: Cifar, path: Path, split: str) -> Dataset:
    """A split from the folder of `.bin` files (memory-mapped if the split is one file) or from its archive."""
    names = [f"{name}.bin" for name in kind.batches[split]]
    row = kind.label_bytes + _PIXELS
    size = ROWS[split] // len(names) * row
    if path.is_dir():
        _check_names(kind, path / kind.label_names)
        parts = {str(path / name): map_bytes(path / name, size) for name in names}
    else:
        members = read_tar(path, {f"{kind.binary}/{name}": size for name in names}, _MOST)
        parts = {f"{path}/{name}": np.frombuffer(content, np.uint8) for name, content in members.items()}
    images, labels = [], []
    for where, content in parts.items():
        if content.size != size:
            raise damage_error(where, content.size, f"it has {content.size} bytes where there should be {size}")
        rows = content.reshape(-1, row)
        if kind.label_bytes == 2:
            _check_labels(rows[:, 0], _COARSE, where, row)
        start = kind.label_bytes - 1
        labels.append(_check_labels(rows[:, start], len(kind.names), where, row, start))
        images.append(rows[:, kind.label_bytes :].reshape(-1, 3, 32, 32))
    return _join(images, labels, kind.names)


def load_python(kind: Cifar, path: Path, split: str) -> Dataset:
    """A split from the folder of pickled batches or from its archive, without running what a pickle names."""
    names = kind.batches[split]
    rows = ROWS[split] // len(names)
    if path.is_dir():
        contents = {str(path / name): read_bytes(path / name, _MOST) for name in names}
    else:
        members = read_tar(path, {f"{kind.python}/{name}": _MOST for name in names}, _MOST)
        contents = {f"{path}/{name}": content for name, content in members.items()}
    images, labels = [], []
    for (where, content), name in zip(contents.items(), names, strict=True):
        batch = read_pickle(content, where)
        pixels, numbers = _read_batch(kind, batch, where, rows, len(content))
        _check_title(batch, where, split, name)
        images.append(pixels.reshape(-1, 3, 32, 32))
        labels.append(_check_labels(numbers, len(kind.names), where, 0, len(content)))
    return _join(images, labels, kind.names)


def _read_batch(kind: Cifar, batch: object, where: str, rows: int, end: int) -> tuple[Bytes, np.ndarray]:
    key = "labels" if kind.label_bytes == 1 else "fine_labels"
    pixels, labels = (batch.get("data"), batch.get(key)) if isinstance(batch, dict) else (None, None)
    if not isinstance(pixels, np.ndarray) or pixels.shape != (rows, _PIXELS):
        raise damage_error(where, end, f"its `data` is not an array of {rows} × {_PIXELS} bytes")
    if not isinstance(labels, list) or len(labels) != rows or not all(type(label) is int for label in labels):
        raise damage_error(where, end, f"its `{key}` are not {rows} whole numbers")
    return pixels, np.asarray(labels)


def _check_title(batch: dict[str, object], where: str, split: str, name: str) -> None:
    """Compare the title in a batch with its file name: a test batch must not be read as a training batch."""
    title = batch.get("batch_label", "")
    title = title.decode("latin-1") if isinstance(title, bytes) else str(title)
    # Only CIFAR-10's training batches are numbered; every other split is "… batch 1 of 1".
    number = name[-1] if name[-1].isdigit() else "1"
    expected = f"{split}ing batch {number} of"
    if title and not title.startswith(expected):
        raise damage_error(where, 0, f"it calls itself {title!r} where {expected!r} … should be")


def _check_names(kind: Cifar, path: Path) -> None:
    if path.is_file() and tuple(read_bytes(path, 1 << 16).decode("utf-8", "replace").split()) != kind.names:
        raise damage_error(path, 0, f"its names are not the {len(kind.names)} classes in the publisher's order")


def _check_labels(labels: np.ndarray, classes: int, where: str, stride: int, start: int = 0) -> np.ndarray:
    """The labels as int64; an error for the first that is not a class, at byte start + row · stride."""
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if bad.size:
        row = int(bad[0])
        problem = f"image {row} has label {labels[row]} where there are {classes} classes"
        raise damage_error(where, start + row * stride, problem)
    return labels.astype(np.int64)


def _join(images: list[Bytes], labels: list[np.ndarray], names: tuple[str, ...]) -> Dataset:
    pixels = images[0] if len(images) == 1 else np.concatenate(images)  # one file stays mapped
    return Dataset(torch.from_numpy(pixels), torch.from_numpy(np.concatenate(labels)), names)
