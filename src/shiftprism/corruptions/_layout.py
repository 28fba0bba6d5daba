"""A corrupted data set on disk, in the layout of the official CIFAR-10-C and CIFAR-100-C folders."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._files import check_file, read_json, replacing, write_json
from shiftprism.corruptions._corruption import Corruption, check_images, check_seeds
from shiftprism.corruptions._frost import textures
from shiftprism.corruptions._severities import choose_parameters
from shiftprism.corruptions._table import COMMON, find_corruption

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
    parameters: str = "auto",
    progress: Progress | None = None,
) -> list[Path]:
    """Write `<name>.npy` for each corruption, and `labels.npy`. Return the paths of the former in the order of `names`.

    A file holds uint8 (5 N, H, W, C): all images at severity 1, then all at severity 2, and so on. The labels (5 N,)
    repeat too. Each file appears only when it is complete, and a complete one is kept, so an interrupted run resumes
    where it stopped. `shiftprism.json` beside them records which images, labels, seeds, frost textures and `parameters`
    (see `corrupt`) they were made from. A folder that was made from others is an error. `progress(done, total, name)`
    is called after each of the 5 · len(names) conditions.

    >>> from tempfile import TemporaryDirectory
    >>> images = torch.zeros(10, 3, 32, 32, dtype=torch.uint8)
    >>> with TemporaryDirectory() as folder:
    ...     (path,) = write_layout(images, torch.arange(10), folder, ["fog"])
    ...     path.name, np.load(path).shape
    ('fog.npy', (50, 32, 32, 3))
    """
    corruptions = [find_corruption(name, photographs, parameters) for name in names]
    count = len(check_images(images))
    numbers = check_seeds(torch.arange(count) if seeds is None else seeds, count)
    target = Path(folder)
    classes = _check_labels(labels, count)
    record = {"shape": list(images.shape), "parameters": choose_parameters(min(images.shape[2:]), parameters)}
    _check_record(target, record | {"sha256": _hashes(images, classes, numbers, photographs)})
    with replacing(target / "labels.npy") as beside, beside.open("wb") as file:
        np.save(file, np.tile(classes, 5), allow_pickle=False)
    paths = [target / f"{name}.npy" for name in names]
    for position, (corruption, path) in enumerate(zip(corruptions, paths, strict=True)):

        def report(severity: int, before: int = 5 * position, name: str = corruption.name) -> None:
            if progress is not None:
                progress(before + severity, 5 * len(paths), name)

        if _is_complete(path, (5 * count, *images.shape[2:], images.shape[1])):
            report(5)
        else:
            _write(path, corruption, images, numbers, report)
    return paths


def _write(
    path: Path, corruption: Corruption, images: Tensor, seeds: NDArray[np.int64], report: Callable[[int], None]
) -> None:
    count, channels, height, width = images.shape
    with replacing(path) as beside:
        pixels = open_memmap(beside, "w+", np.uint8, (5 * count, height, width, channels))
        for severity in _SEVERITIES:
            corrupted = corruption(images, severity, seeds)
            pixels[(severity - 1) * count : severity * count] = corrupted.permute(0, 2, 3, 1).cpu().numpy()
            report(severity)
        pixels.flush()


def _is_complete(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether the file exists, is not cut, and has the expected shape."""
    check_file(path)  # to read a pipe would wait for ever
    try:
        return bool(np.load(path, mmap_mode="r", allow_pickle=False).shape == shape)
    except (OSError, ValueError, EOFError):
        return False


def _check_labels(labels: "Tensor | ArrayLike", count: int) -> NDArray[np.generic]:
    """The labels in uint8 as in the official files, or in int64 where they do not fit."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        got = f"{array.dtype} of shape {array.shape}"
        raise wrong("labels", f"whole numbers of shape ({count},)", got, "pass one class number for each image")
    fits = count == 0 or (array.min() >= 0 and array.max() <= 255)
    return array.astype(np.uint8 if fits else np.int64)


def _hashes(
    images: Tensor, labels: NDArray[np.generic], seeds: NDArray[np.int64], photographs: "str | Path | None"
) -> dict[str, str]:
    """SHA-256 of everything that the files of a folder are made from."""
    sources = {
        "images": [images.cpu().numpy()],
        "labels": [labels.astype(np.int64)],
        "seeds": [seeds],
        "frost": textures(None if photographs is None else str(photographs)),
    }
    hashes = {}
    for name, arrays in sources.items():
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        hashes[name] = digest.hexdigest()
    return hashes


def _check_record(folder: Path, record: dict[str, Any]) -> None:
    """Record in the folder what it is made from; an error if it was made from something else."""
    path = folder / _RECORD
    if not path.exists():
        others = sorted(file.name for file in folder.glob("*.npy"))
        if others:
            got = f"{folder} with {others[0]}"
            raise wrong("folder", "empty or one of corrupted images", got, "choose another folder")
        write_json(path, record)
        return
    recorded = read_json(path, "a record that write_layout wrote", "choose another folder or remove this one")
    hashes = recorded.get("sha256")
    if not isinstance(hashes, dict):
        hashes = {}
    other = [key for key, value in record["sha256"].items() if hashes.get(key) != value]
    if recorded.get("parameters", "cifar") != record["parameters"]:  # earlier versions knew CIFAR-C's alone
        other.append("parameters")
    if other:
        got = f"{folder}, made from other {' and '.join(other)}"
        raise wrong("folder", "made from the same data", got, "choose another folder or remove this one")
