"""Where data sets are looked for, and where downloads and decoded images are put."""

import os
from pathlib import Path

from shiftprism.datasets._catalogue import DATASETS, Format


def data_folder(root: "str | Path | None" = None) -> Path:
    """The folder for downloads and decoded images: `root`, or $SHIFTPRISM_DATA, or ~/.cache/shiftprism.

    >>> data_folder("somewhere").name
    'somewhere'
    """
    given = root or os.environ.get("SHIFTPRISM_DATA")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "shiftprism"


def search_folders(root: "str | Path | None" = None) -> list[Path]:
    """The folders in which data sets are looked for, in order.

    They are `root` if it is given, else $SHIFTPRISM_DATA if it is set, else ./data and ~/.cache/shiftprism. The folder
    `datasets` in each of $XDG_DATA_DIRS follows: Debian's packages of data sets install to it.
    """
    folders = [data_folder(root)] if root or os.environ.get("SHIFTPRISM_DATA") else [Path("data"), data_folder()]
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    return folders + [Path(folder) / "datasets" for folder in shared.split(":") if folder]


def find(name: str, split: str, root: "str | Path | None" = None) -> tuple[Path, Format] | None:
    """The first file or folder that holds a split of the data set `name`, and its format; None if there is none.

    The path is empty for a data set that needs no file.
    """
    formats = DATASETS[name].formats
    if not formats[0].path:
        return Path(), formats[0]
    for folder in search_folders(root):
        for form in formats:
            path = folder / form.path
            files = None if form.files is None else form.files.get(split, ())
            if path.exists() and (files is None or any((path / file).exists() for file in files)):
                return path, form
    return None


def missing_error(name: str, split: str, root: "str | Path | None" = None) -> FileNotFoundError:
    """The error for a split that was not found. It says which files to put where."""
    entry, target = DATASETS[name], data_folder(root)
    formats = ", or ".join(form.path for form in entry.formats)
    sources = "; ".join(f"{item.addresses[0]} as {target / item.to}" for item in entry.downloads)
    searched = ", ".join(str(folder) for folder in search_folders(root))
    return FileNotFoundError(
        f"The {split} split of {name} was not found in {searched}. Run `shiftprism data get {name}`, or put {formats} "
        f"into {target}. Without a network here, download elsewhere {sources}."
    )
