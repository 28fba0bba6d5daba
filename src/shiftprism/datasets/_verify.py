"""Looking at what there is of a named data set: found where, whole or not."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from shiftprism.datasets._catalogue import DATASETS, Wish, find
from shiftprism.datasets._corrupted import corruptions
from shiftprism.datasets._download import right
from shiftprism.datasets._places import roots


class Finding(NamedTuple):
    """One split of a data set, as it was found."""

    split: str
    path: Path | None
    """Where; None where nothing was found."""
    shape: tuple[int, ...] = ()
    """Of the images, where they could be read."""
    problem: str = ""
    """What is wrong with it."""
    published: bool | None = None
    """Whether it has the published digest, where it is a file that has one."""


def verify(name: str, root: "str | Path | None" = None) -> Iterator[Finding]:
    """Read every split of `name` from its files, not from what was decoded before, and compare the known digests."""
    for split in DATASETS[name].splits:
        found = find(name, split, roots(root))
        if found is None:
            yield Finding(split, None)
            continue
        path, form = found
        try:
            with TemporaryDirectory() as cache:
                parts = [f"{part}/5" for part in corruptions(path)] if name.endswith("-c") else [""]
                shapes = [form.read(path, Wish(split, part, Path(cache))).check(name).images.shape for part in parts]
            yield Finding(split, path, tuple(shapes[-1]), published=_published(name, path))
        except (ValueError, OSError, IndexError) as error:
            yield Finding(split, path, problem=str(error) or type(error).__name__)


def _published(name: str, path: Path) -> bool | None:
    """Whether the file, or the files of the folder, that were found are byte for byte the publisher's."""
    entry = DATASETS[name]
    known = {item.to: item.digest for item in entry.downloads}
    if entry.npm:
        known[entry.npm.file] = entry.npm.digest
    answers = [
        right(file, digest)
        for to, digest in known.items()
        for file in (path if path.name == to else path / Path(to).name,)
        if file.is_file()
    ]
    return all(answers) if answers else None
