"""Checking the files of a named data set: where they are, and whether they are complete."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from shiftprism.datasets._catalogue import DATASETS, Request, describe_subset
from shiftprism.datasets._corrupted import corruptions
from shiftprism.datasets._download import has_digest
from shiftprism.datasets._find import find


class Finding(NamedTuple):
    """What was found of one split of a data set."""

    split: str
    path: Path | None
    """Where it is; None if it was not found, empty if it needs no file."""
    shape: tuple[int, ...] = ()
    """The shape of the images, if they could be read."""
    problem: str = ""
    """What is wrong with it."""
    published: bool | None = None
    """Whether its files have the published digests; None if no digest is known for them."""
    subset: str = ""
    """What to call it if the publisher has more images; empty if it is complete."""


def verify(name: str, root: "str | Path | None" = None) -> Iterator[Finding]:
    """Read every split of `name` from its files, not from the cache, and compare the known digests."""
    for split in DATASETS[name].splits:
        place = find(name, split, root)
        if place is None:
            yield Finding(split, None)
            continue
        path, form = place
        try:
            with TemporaryDirectory() as cache:
                # One severity of a corruption is enough: reading it checks the length of the whole file.
                parts = [f"{part}/5" for part in corruptions(path)] if name.endswith("-c") else [""]
                shapes = [form.read(path, Request(split, part, Path(cache))).check(name).images.shape for part in parts]
            subset = describe_subset(name, split, shapes[-1][0])
            yield Finding(split, path, tuple(shapes[-1]), published=_is_published(name, path), subset=subset)
        except (ValueError, OSError, IndexError) as error:
            yield Finding(split, path, problem=str(error) or type(error).__name__)


def _is_published(name: str, path: Path) -> bool | None:
    """Whether the file, or the files in the folder, are byte for byte the publisher's."""
    answers = [
        has_digest(file, item.digest)
        for item in DATASETS[name].downloads
        for file in (path if path.name == item.to else path / Path(item.to).name,)
        if file.is_file()
    ]
    return all(answers) if answers else None
