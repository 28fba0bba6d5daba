"""Tiny ImageNet: 200 classes at 64 × 64, read at 32 × 32 from the publisher's zip or folder, or from class folders."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._decoded import Source, stamp
from shiftprism.datasets._folders import SPLIT_FOLDERS, Labelled, first_folder, labelled_images, scan
from shiftprism.datasets._images import Picture
from shiftprism.datasets._safe import check_name, damaged, opened_zip, unzipping

CLASSES = 200
EACH = {"train": 500, "test": 50}
_INSIDE = "tiny-imagenet-200/"
_MOST_BYTES = 1 << 22

Files = Mapping[str, Callable[[], bytes]]
"""What a file is called below the data set's folder -> how to read it."""


def load_tiny_imagenet(path: Path, split: str, cache: Path) -> Dataset:
    """The training set (100,000) or, as "test", the validation set (10,000): the publisher's test set has no labels.

    The classes are named by their WordNet ids and numbered in the order of these, whatever the layout.
    """
    if path.suffix == ".zip":
        with opened_zip(path) as archive:
            return _decoded(path, _published(path, _zipped(path, archive), split, [stamp(path)]), split, cache)
    if (path / "wnids.txt").is_file():
        return _decoded(path, _published(path, *_unpacked(path, split)), split, cache)
    return _decoded(path, scan(first_folder(path, SPLIT_FOLDERS[split]) or path, None), split, cache)


def _decoded(path: Path, found: Labelled, split: str, cache: Path) -> Dataset:
    counts = np.bincount(found.labels, minlength=len(found.names))
    if len(found.names) != CLASSES or (counts != EACH[split]).any():
        short = found.names[int((counts != EACH[split]).argmax())]
        got = f"{len(found.names)} classes, {counts.min()} to {counts.max()} images each (look at {short})"
        raise damaged(path, 0, f"{got}, where {CLASSES} classes have {EACH[split]} each")
    source = Source("tiny-imagenet", (str(path.absolute()), split), found.source.state)
    return labelled_images(found._replace(source=source), cache, 32, False)


def _published(path: Path, files: Files, split: str, state: object) -> Labelled:
    """The publisher's layout: `train/<wnid>/images/*.JPEG`, and `val/images/*.JPEG` with a list of their classes."""
    names = tuple(sorted(_text(path, files, "wnids.txt").split()))
    number = {name: position for position, name in enumerate(names)}
    if split == "train":
        images = sorted(name for name in files if name.startswith("train/") and name.endswith(".JPEG"))
        classes = [name.split("/")[1] for name in images]
    else:
        rows = [line.split("\t") for line in _text(path, files, "val/val_annotations.txt").splitlines()]
        images, classes = [f"val/images/{row[0]}" for row in rows], [row[1] if row[1:] else "" for row in rows]
    for image, name in zip(images, classes, strict=True):
        if image not in files or name not in number:
            raise damaged(path, 0, f"{image} of class {name!r} is listed, and the file or the class is not there")
    pictures = [Picture(f"{path}/{image}", files[image]) for image in images]
    return Labelled(pictures, [number[name] for name in classes], names, Source("", "", state))


def _text(path: Path, files: Files, name: str) -> str:
    if name not in files:
        raise damaged(path, 0, f"it has no {name}")
    return files[name]().decode("utf-8", "replace")


def _unpacked(folder: Path, split: str) -> tuple[Files, str, object]:
    part = folder / ("train" if split == "train" else "val")
    found = [folder / "wnids.txt", folder / "val" / "val_annotations.txt", *sorted(part.rglob("*.JPEG"))]
    files = [file for file in found if file.is_file()]
    return (
        {file.relative_to(folder).as_posix(): file.read_bytes for file in files},
        split,
        [stamp(file) for file in files],
    )


def _zipped(path: Path, archive: zipfile.ZipFile) -> Files:
    files: dict[str, Callable[[], bytes]] = {}
    for member in archive.infolist():
        check_name(path, member.filename, member.header_offset)
        if member.file_size > _MOST_BYTES:
            problem = f"{member.filename} claims {member.file_size} bytes where at most {_MOST_BYTES} can belong to it"
            raise damaged(path, member.header_offset, problem)
        files[member.filename.removeprefix(_INSIDE)] = _reader(path, archive, member)
    return files


def _reader(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        with unzipping(path, member.filename, member.header_offset):
            return archive.read(member)  # zipfile locks its file, so threads may share it

    return read
