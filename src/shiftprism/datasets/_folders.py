"""A folder of class folders, or of images without classes: a user's own images."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism._checks import choice, wrong
from shiftprism._files import check_file
from shiftprism.datasets._cache import Source, load_or_decode, stamp
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._images import Picture, decode, suffixes
from shiftprism.datasets._read import NOTES

SPLIT_FOLDERS = {"train": ("train", "training"), "test": ("test", "val", "valid", "validation")}


class LabelledFiles(NamedTuple):
    """Image files with their classes."""

    pictures: list[Picture]
    labels: list[int]
    names: tuple[str, ...]
    source: Source
    """What identifies these files in the cache."""


class LabelledPaths(NamedTuple):
    """The image files of a folder with their classes, for `read_images`."""

    paths: list[Path]
    labels: Tensor
    """(N,), int64: positions in `names`."""
    names: tuple[str, ...]


def list_labelled(folder: "str | Path", split: str) -> LabelledPaths:
    """The image files that `load` reads from a folder of class folders for a split, without reading them.

    So images of different sizes, of which some may be broken, can go through `read_images`.
    """
    parts = _list_parts(Path(folder), choice("split", split, ("train", "test", "all")))
    names, labels = parts[0].names, torch.tensor([label for part in parts for label in part.labels])
    paths = [Path(picture.where) for part in parts for picture in part.pictures]
    if split == "all" or _find_splits(Path(folder)):
        return LabelledPaths(paths, labels, names)
    chosen = Dataset(torch.arange(len(paths)), labels, names).divide(split)
    return LabelledPaths([paths[row] for row in chosen.images.tolist()], chosen.labels, names)


def load_folder(folder: Path, split: str, cache: Path, size: int | None) -> Dataset:
    """The class folders or the images in `folder`, or in its `train` and `test` (`val`) folders where it has these."""
    data = Dataset.concat([load_images(part, cache, size) for part in _list_parts(folder, split)])
    return data if split == "all" or _find_splits(folder) else data.divide(split)


def _find_splits(folder: Path) -> dict[str, Path]:
    """The folders of the splits; empty where there are none."""
    parts = {part: first_folder(folder, names) for part, names in SPLIT_FOLDERS.items()}
    return {part: place for part, place in parts.items() if place is not None}


def _list_parts(folder: Path, split: str) -> list[LabelledFiles]:
    """The files of a split; all of them where the folder has no splits."""
    splits = _find_splits(folder)
    if not splits:
        return [list_files(folder, None)]
    # The training classes number both splits, so a test folder that lacks a class does not shift the others.
    names = _class_names(splits.get("train") or splits["test"], folder.absolute().name)
    wanted = ("train", "test") if split == "all" else (split,)
    if not set(wanted) & set(splits):
        raise FileNotFoundError(f"{folder} has no folder for the split {split!r}: {', '.join(SPLIT_FOLDERS[split])}.")
    return [list_files(splits[part], names, folder) for part in wanted if part in splits]


def list_files(folder: Path, names: tuple[str, ...] | None, root: Path | None = None) -> LabelledFiles:
    """The image files in the class folders of `folder`, in order of their names. `names` are the classes allowed.

    Images without class folders are one class, named like `root`. Links may lead to other files of `root`, by default
    the folder, and not out of it.
    """
    root = root or folder
    present = _class_names(folder, root.absolute().name)
    allowed = present if names is None else names
    if unknown := sorted(set(present) - set(allowed)):
        got = f"the further class {folder / unknown[0]}"
        raise wrong("name", "a folder with the training classes", got, "remove or rename it")
    pictures, labels, stamps = [], [], []
    for name in present:
        place = folder / name if _list_folders(folder) else folder
        check_link(place, root)
        files = _image_files(place, root)
        pictures += [Picture(str(file), file.read_bytes) for file in files]
        labels += [allowed.index(name)] * len(files)
        stamps += [stamp(file) for file in files]
    source = Source("folder", (str(folder.absolute()), allowed), stamps)
    return LabelledFiles(pictures, labels, allowed, source)


def _class_names(folder: Path, unlabelled: str) -> tuple[str, ...]:
    """The names of the class folders; the one name `unlabelled` for a folder with images and without folders."""
    folders, endings = _list_folders(folder), suffixes()
    loose = [entry for entry in sorted(folder.iterdir()) if entry.suffix.lower() in endings and entry not in folders]
    loose = [entry for entry in loose if not entry.name.startswith(".") and not entry.is_dir()]
    expected = "a folder of class folders, or of images without classes,"
    if folders and loose:
        got = f"{folder} with folders and with {len(loose)} images beside them ({loose[0].name}, …)"
        raise wrong("name", expected, got, "move these images into a class folder, or out of it")
    if not folders and not loose:
        raise wrong("name", expected, f"{folder} without folders and images", "make a folder for each class")
    return tuple(entry.name for entry in folders) or (unlabelled,)


def _list_folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


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
        # any other file that is not a note is an error: it may be a misnamed image
        elif file.suffix.lower() not in NOTES:
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
