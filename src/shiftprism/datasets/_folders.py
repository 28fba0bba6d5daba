"""A folder of class folders: a user's own images."""

from pathlib import Path
from typing import NamedTuple

import torch

from shiftprism._checks import wrong
from shiftprism._files import check_file
from shiftprism.datasets._cache import Source, load_or_decode, stamp
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._images import Picture, decode, suffixes

SPLIT_FOLDERS = {"train": ("train", "training"), "test": ("test", "val", "valid", "validation")}
# What people keep beside their images. Any other file that is not an image is an error: it may be a misnamed image.
_NOTES = frozenset((".txt", ".csv", ".tsv", ".json", ".xml", ".md", ".yaml", ".yml", ".db", ".ini", ".html", ".pdf"))


class LabelledFiles(NamedTuple):
    """Image files with their classes."""

    pictures: list[Picture]
    labels: list[int]
    names: tuple[str, ...]
    source: Source
    """What identifies these files in the cache."""


def load_folder(folder: Path, split: str, cache: Path, size: int | None) -> Dataset:
    """The class folders in `folder`, or in its `train` and `test` (`val`) folders where it has these."""
    parts = {part: first_folder(folder, names) for part, names in SPLIT_FOLDERS.items()}
    if parts["train"] is None and parts["test"] is None:
        data = load_images(list_files(folder, None), cache, size)
        return data if split == "all" else data.divide(split)
    places = [parts[part] for part in (("train", "test") if split == "all" else (split,))]
    # The training classes number both splits, so a test folder that lacks a class does not shift the others.
    reference = parts["train"] or parts["test"]
    names = _class_names(reference) if reference else None
    loaded = [load_images(list_files(place, names, folder), cache, size) for place in places if place is not None]
    if not loaded:
        raise FileNotFoundError(f"{folder} has no folder for the split {split!r}: {', '.join(SPLIT_FOLDERS[split])}.")
    return Dataset.concat(loaded)


def list_files(folder: Path, names: tuple[str, ...] | None, root: Path | None = None) -> LabelledFiles:
    """The image files in the class folders of `folder`, in order of their names. `names` are the classes allowed.

    Links may lead to other files of `root`, by default the folder, and not out of it.
    """
    present = _class_names(folder)
    allowed = present if names is None else names
    if not present:
        raise wrong("name", "a folder of class folders", f"{folder} without folders", "make a folder for each class")
    if unknown := sorted(set(present) - set(allowed)):
        got = f"the further class {folder / unknown[0]}"
        raise wrong("name", "a folder with the training classes", got, "remove or rename it")
    pictures, labels, stamps = [], [], []
    for name in present:
        check_link(folder / name, root or folder)
        files = _image_files(folder / name, root or folder)
        pictures += [Picture(str(file), file.read_bytes) for file in files]
        labels += [allowed.index(name)] * len(files)
        stamps += [stamp(file) for file in files]
    source = Source("folder", (str(folder.absolute()), allowed), stamps)
    return LabelledFiles(pictures, labels, allowed, source)


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def check_link(path: Path, root: Path) -> None:
    """Refuse a link that leads out of `root`, or to a folder, whose images would be missing from the list."""
    if not path.is_symlink():
        return
    target = path.resolve()
    if path.is_dir() or not target.is_relative_to(root.resolve()):
        got = f"{path}, a link to {'the folder ' if path.is_dir() else ''}{target}"
        raise wrong("name", f"a folder of files in {root}", got, "copy what it points to")


def _image_files(folder: Path, root: Path) -> list[Path]:
    endings = suffixes()
    images = []
    for file in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        check_link(file, root)
        if file.is_dir():
            continue
        check_file(file)
        if file.suffix.lower() in endings:
            images.append(file)
        elif file.suffix.lower() not in _NOTES:
            got = f"{file}, which is not in an image format we read"
            raise wrong("name", "a folder of class folders with images", got, "convert or remove this file")
    if not images:
        raise wrong("name", "a folder of class folders with images", f"the empty {folder}", "fill or remove it")
    return images


def first_folder(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The first of the folders `names` that exists in `folder`."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def load_images(files: LabelledFiles, cache: Path, size: int | None, grey: bool | None = None) -> Dataset:
    """The images of the files, decoded or from the cache."""
    source = files.source._replace(identity=(files.source.identity, size, grey))
    images = load_or_decode(cache, source, lambda: decode(files.pictures, size, grey))
    return Dataset(torch.from_numpy(images), torch.tensor(files.labels), files.names)
