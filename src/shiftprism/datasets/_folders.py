"""A folder of class folders: anyone's own images."""

from pathlib import Path
from typing import NamedTuple

import torch

from shiftprism._checks import wrong
from shiftprism.datasets._dataset import Dataset
from shiftprism.datasets._decoded import Source, decoded, stamp
from shiftprism.datasets._images import Picture, decode, suffixes
from shiftprism.datasets._safe import damaged

SPLIT_FOLDERS = {"train": ("train", "training"), "test": ("test", "val", "valid", "validation")}
# What people keep beside their images; anything else that is not an image is an error, not a shorter data set.
_BESIDE = frozenset((".txt", ".csv", ".tsv", ".json", ".xml", ".md", ".yaml", ".yml", ".db", ".ini", ".html", ".pdf"))


class Labelled(NamedTuple):
    """Image files with their classes."""

    pictures: list[Picture]
    labels: list[int]
    names: tuple[str, ...]
    source: Source
    """What tells these files from others in the cache."""


def load_folder(folder: Path, split: str, cache: Path, size: int | None) -> Dataset:
    """The class folders in `folder`, or in its `train` and `test` (`val`) folders where it has these."""
    parts = {part: first_folder(folder, names) for part, names in SPLIT_FOLDERS.items()}
    if parts["train"] is None and parts["test"] is None:
        data = labelled_images(scan(folder, None), cache, size)
        return data if split == "all" else data.divided(split)
    places = [parts[part] for part in (("train", "test") if split == "all" else (split,))]
    reference = parts["train"] or parts["test"]
    names = _class_names(reference) if reference else None
    found = [labelled_images(scan(place, names), cache, size) for place in places if place is not None]
    if not found:
        raise FileNotFoundError(f"{folder} has no folder for the split {split!r}: {', '.join(SPLIT_FOLDERS[split])}.")
    return found[0] if len(found) == 1 else Dataset.concat(found)


def scan(folder: Path, names: tuple[str, ...] | None) -> Labelled:
    """The image files below the class folders of `folder`, in order of their names; `names` are the classes allowed."""
    found = _class_names(folder)
    known = found if names is None else names
    if not found:
        raise wrong("name", "a folder of class folders", f"{folder} without folders", "put each class's images in one")
    if unknown := sorted(set(found) - set(known)):
        raise wrong(
            "name", "a folder with the training classes", f"{folder / unknown[0]} besides", "remove or rename it"
        )
    pictures, labels, stamps = [], [], []
    for name in found:
        files = _image_files(folder / name)
        pictures += [Picture(str(file), file.read_bytes) for file in files]
        labels += [known.index(name)] * len(files)
        stamps += [stamp(file) for file in files]
    source = Source("folder", (str(folder.absolute()), known), stamps)
    return Labelled(pictures, labels, known, source)


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def _image_files(folder: Path) -> list[Path]:
    endings = suffixes()
    found = []
    for file in sorted(folder.rglob("*")):
        if file.is_dir() or any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        if file.suffix.lower() in endings:
            found.append(file)
        elif file.suffix.lower() not in _BESIDE:
            raise damaged(file, 0, "a file in a class folder that is not an image by its ending")
    if not found:
        raise wrong("name", "a folder of class folders with images", f"the empty {folder}", "fill or remove it")
    return found


def first_folder(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The first of the folders `names` that there is."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def labelled_images(found: Labelled, cache: Path, size: int | None, grey: bool | None = None) -> Dataset:
    """The images decoded, or mapped where they were decoded before."""
    source = found.source._replace(identity=(found.source.identity, size, grey))
    images = decoded(cache, source, lambda: decode(found.pictures, size, grey))
    return Dataset(torch.from_numpy(images), torch.tensor(found.labels), found.names)
