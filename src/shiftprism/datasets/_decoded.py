"""Images decoded once: a `.npy` in the cache that later calls memory-map."""

import contextlib
import hashlib
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shiftprism._files import replacing
from shiftprism.datasets._safe import Bytes, map_npy

Shape = tuple[int, ...]


def stamp(path: Path) -> tuple[str, int, int]:
    """What tells whether a file is still the one that was decoded: name, size and time of its last change."""
    found = path.stat()
    return str(path.absolute()), found.st_size, found.st_mtime_ns


class Source(NamedTuple):
    """What was decoded."""

    name: str
    """For people who look into the cache."""
    identity: object
    """Which data it is."""
    state: object
    """What of it there was, such as stamps: what was decoded from another state is out of date, and removed."""


def decoded(cache: Path, source: Source, make: Callable[[], tuple[Shape, Iterable[Bytes]]]) -> Bytes:
    """The uint8 array of shape (N, …) that `make` gives as its shape and blocks of rows, made once for each source.

    A cache that cannot be written to costs nothing but the decoding, each time.
    """
    folder = cache / "decoded"
    stem = f"{source.name}-{_short(source.identity)}"
    path = folder / f"{stem}-{_short(source.state)}.npy"
    with contextlib.suppress(OSError, ValueError):  # one that is damaged or out of reach is made again
        found = map_npy(path)
        if found.dtype == np.uint8:
            return found
    shape, blocks = make()
    if not _writable(folder):
        return np.concatenate(list(blocks)).reshape(shape)
    with replacing(path) as beside:
        _write(beside, shape, blocks)
    for old in folder.glob(f"{stem}-{'?' * len(_short(None))}.npy"):
        if old != path:
            old.unlink(missing_ok=True)
    return map_npy(path)


def _short(thing: object) -> str:
    return hashlib.sha256(repr(thing).encode()).hexdigest()[:12]


def _write(path: Path, shape: Shape, blocks: Iterable[Bytes]) -> None:
    """Written in order rather than through a map, so that a full disk is an error and not a signal."""
    with path.open("wb") as file:
        head = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)  # type: ignore[no-untyped-call, unused-ignore]
        written = sum(file.write(np.ascontiguousarray(block).data) for block in blocks)
    if written != math.prod(shape):
        raise AssertionError


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
