"""Tiny ImageNet: 200 classes at 64 × 64, read at 32 × 32 from the publisher's zip or folder, or from class folders."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from shiftprism._npz import check_name, damage_error, open_zip, zip_errors
from shiftprism.datasets._cache import Source, stamp
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._folders import SPLIT_FOLDERS, LabelledFiles, first_folder, list_files, load_images
from shiftprism.datasets._images import Picture

CLASSES = 200
EACH = {"train": 500, "test": 50}
_INSIDE = "tiny-imagenet-200/"
_MOST_BYTES = 1 << 22

Files = Mapping[str, Callable[[], bytes]]
"""From the name of a file below the data set's folder to a function that reads it."""


def load_tiny_imagenet(path: Path, split: str, cache: Path) -> Dataset:
    """The training set (100,000) or, as "test", the validation set (10,000): the publisher's test set has no labels.

    The classes are named by their WordNet ids and numbered in the order of these ids, in every layout.
    """
    if path.suffix == ".zip":
        with open_zip(path) as archive:  # open until the images are decoded
            files = _list_published_files(path, _zip_files(path, archive), split, [stamp(path)])
            return _check_and_load(path, files, split, cache)
    if (path / "wnids.txt").is_file():
        files = _list_published_files(path, *_folder_files(path, split))
    else:
        files = list_files(first_folder(path, SPLIT_FOLDERS[split]) or path, None)
    return _check_and_load(path, files, split, cache)


def _check_and_load(path: Path, files: LabelledFiles, split: str, cache: Path) -> Dataset:
    counts = np.bincount(files.labels, minlength=len(files.names))
    if len(files.names) != CLASSES or (counts != EACH[split]).any():
        short = files.names[int((counts != EACH[split]).argmax())]
        got = f"{len(files.names)} classes, {counts.min()} to {counts.max()} images each (look at {short})"
        raise damage_error(path, 0, f"{got}, where {CLASSES} classes have {EACH[split]} each")
    source = Source("tiny-imagenet", (str(path.absolute()), split), files.source.state)
    return load_images(files._replace(source=source), cache, 32, False)


def _list_published_files(path: Path, files: Files, split: str, state: object) -> LabelledFiles:
    """The publisher's layout: `train/<wnid>/images/*.JPEG`, and `val/images/*.JPEG` with a list of their classes."""
    names = tuple(sorted(_read_text(path, files, "wnids.txt").split()))
    number = {name: position for position, name in enumerate(names)}
    if split == "train":
        images = sorted(name for name in files if name.startswith("train/") and name.endswith(".JPEG"))
        classes = [name.split("/")[1] for name in images]
    else:
        rows = [line.split("\t") for line in _read_text(path, files, "val/val_annotations.txt").splitlines()]
        images, classes = [f"val/images/{row[0]}" for row in rows], [row[1] if row[1:] else "" for row in rows]
    for image, name in zip(images, classes, strict=True):
        if image not in files or name not in number:
            raise damage_error(
                path, 0, f"{image} of class {name!r} is listed, but the file or the class does not exist"
            )
    pictures = [Picture(f"{path}/{image}", files[image]) for image in images]
    return LabelledFiles(pictures, [number[name] for name in classes], names, Source("", "", state))


def _read_text(path: Path, files: Files, name: str) -> str:
    if name not in files:
        raise damage_error(path, 0, f"it has no {name}")
    return files[name]().decode("utf-8", "replace")


def _folder_files(folder: Path, split: str) -> tuple[Files, str, object]:
    part = folder / ("train" if split == "train" else "val")
    paths = [folder / "wnids.txt", folder / "val" / "val_annotations.txt", *sorted(part.rglob("*.JPEG"))]
    files = [path for path in paths if path.is_file()]
    return (
        {file.relative_to(folder).as_posix(): file.read_bytes for file in files},
        split,
        [stamp(file) for file in files],
    )


def _zip_files(path: Path, archive: zipfile.ZipFile) -> Files:
    files: dict[str, Callable[[], bytes]] = {}
    for member in archive.infolist():
        check_name(path, member.filename, member.header_offset)
        if member.file_size > _MOST_BYTES:
            problem = f"{member.filename} claims {member.file_size} bytes where at most {_MOST_BYTES} can belong to it"
            raise damage_error(path, member.header_offset, problem)
        files[member.filename.removeprefix(_INSIDE)] = _reader(path, archive, member)
    return files


def _reader(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        with zip_errors(path, member.filename, member.header_offset):
            return archive.read(member)  # zipfile locks its file, so threads may share it

    return read
