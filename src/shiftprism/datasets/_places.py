"""Where data is looked for and where it is put."""

import os
from pathlib import Path


def home(root: "str | Path | None" = None) -> Path:
    """The folder that downloads and decoded images go to: `root`, or $SHIFTPRISM_DATA, or ~/.cache/shiftprism.

    >>> home("somewhere").name
    'somewhere'
    """
    given = root or os.environ.get("SHIFTPRISM_DATA")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "shiftprism"


def roots(root: "str | Path | None" = None) -> list[Path]:
    """The folders that are looked through, in order.

    `root` where it is given, else $SHIFTPRISM_DATA where it is set, else ./data and ~/.cache/shiftprism; and after
    these the folder that Debian's data set packages install to, `datasets` in each of $XDG_DATA_DIRS.
    """
    own = [home(root)] if root or os.environ.get("SHIFTPRISM_DATA") else [Path("data"), home()]
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    return own + [Path(folder) / "datasets" for folder in shared.split(":") if folder]
