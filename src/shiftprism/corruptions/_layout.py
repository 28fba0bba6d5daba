"""A corrupted data set on disk, in the layout of the official CIFAR-10-C and CIFAR-100-C folders."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._files import replacing, write_text
from shiftprism.corruptions._door import Corruption, checked_images, checked_seeds
from shiftprism.corruptions._frost import sheets
from shiftprism.corruptions._named import COMMON, named

Progress = Callable[[int, int, str], None]
_SEVERITIES = (1, 2, 3, 4, 5)
_RECORD = "shiftprism.json"


def write_layout(
    images: Tensor,
    labels: "Tensor | ArrayLike",
    folder: "str | Path",
    names: Sequence[str] = COMMON,
    *,
    seeds: "Tensor | ArrayLike | None" = None,
    photographs: "str | Path | None" = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write one `<name>.npy` for each corruption and `labels.npy`; the paths of the former, in the order of `names`.

    A file holds uint8 (5 N, H, W, C): all images at severity 1, then all at 2, and so on; the labels (5 N,) repeat too.
    Each file is written whole or not at all, and one that is there already is kept, so a run that was cut goes on where
    it stopped. `shiftprism.json` beside them tells which images, labels, seeds and frost they were made from; a folder
    made from others is refused. `progress(done, total, name)` is called after each of the 5 · len(names) conditions.

    >>> from tempfile import TemporaryDirectory
    >>> images = torch.zeros(10, 3, 32, 32, dtype=torch.uint8)
    >>> with TemporaryDirectory() as folder:
    ...     (path,) = write_layout(images, torch.arange(10), folder, ["fog"])
    ...     path.name, np.load(path).shape
    ('fog.npy', (50, 32, 32, 3))
    """
    corruptions = [named(name, photographs) for name in names]
    count = len(checked_images(images))
    numbers = checked_seeds(torch.arange(count) if seeds is None else seeds, count)
    target = Path(folder)
    classes = _checked_labels(labels, count)
    _claim(target, {"shape": list(images.shape), "sha256": _hashes(images, classes, numbers, photographs)})
    with replacing(target / "labels.npy") as beside, beside.open("wb") as file:
        np.save(file, np.tile(classes, 5), allow_pickle=False)
    paths = [target / f"{name}.npy" for name in names]
    for position, (corruption, path) in enumerate(zip(corruptions, paths, strict=True)):

        def tell(severity: int, before: int = 5 * position, name: str = corruption.name) -> None:
            if progress is not None:
                progress(before + severity, 5 * len(paths), name)

        if _whole(path, (5 * count, *images.shape[2:], images.shape[1])):
            tell(5)
        else:
            _write(path, corruption, images, numbers, tell)
    return paths


def _write(
    path: Path, corruption: Corruption, images: Tensor, seeds: NDArray[np.int64], tell: Callable[[int], None]
) -> None:
    count, channels, height, width = images.shape
    with replacing(path) as beside:
        pixels = open_memmap(beside, "w+", np.uint8, (5 * count, height, width, channels))
        for severity in _SEVERITIES:
            done = corruption(images, severity, seeds)
            pixels[(severity - 1) * count : severity * count] = done.permute(0, 2, 3, 1).cpu().numpy()
            tell(severity)
        pixels.flush()


def _whole(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether the file is there, readable to its end and of the shape it should have."""
    try:
        return bool(np.load(path, mmap_mode="r", allow_pickle=False).shape == shape)
    except (OSError, ValueError, EOFError):
        return False


def _checked_labels(labels: "Tensor | ArrayLike", count: int) -> NDArray[np.generic]:
    """Labels as the official files have them, in uint8, or in int64 where they do not fit."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        got = f"{array.dtype} of shape {array.shape}"
        raise wrong("labels", f"whole numbers of shape ({count},)", got, "pass one class number for each image")
    fits = count == 0 or (array.min() >= 0 and array.max() <= 255)
    return array.astype(np.uint8 if fits else np.int64)


def _hashes(
    images: Tensor, labels: NDArray[np.generic], seeds: NDArray[np.int64], folder: "str | Path | None"
) -> dict[str, str]:
    """What the files of a folder are made from, in short."""
    sources = {
        "images": [images.cpu().numpy()],
        "labels": [labels.astype(np.int64)],
        "seeds": [seeds],
        "frost": sheets(None if folder is None else str(folder)),
    }
    hashes = {}
    for name, arrays in sources.items():
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        hashes[name] = digest.hexdigest()
    return hashes


def _claim(folder: Path, record: dict[str, Any]) -> None:
    """Note in the folder what it is made from, or refuse it when that differs."""
    path = folder / _RECORD
    if not path.exists():
        taken = sorted(file.name for file in folder.glob("*.npy"))
        if taken:
            raise wrong("folder", "empty or made by write_layout", f"{folder} with {taken[0]}", "choose another folder")
        write_text(path, json.dumps(record, indent=1) + "\n")
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    other = [key for key, value in record["sha256"].items() if found.get("sha256", {}).get(key) != value]
    if other:
        got = f"{folder}, made from other {' and '.join(other)}"
        raise wrong("folder", "made from the same data", got, "choose another folder or remove this one")
