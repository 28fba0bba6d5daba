"""A cache of decoded images: `.npy` files that later calls memory-map."""

import contextlib
import hashlib
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shiftprism._files import replacing
from shiftprism._npz import map_npy
from shiftprism.datasets._safe import Bytes

Shape = tuple[int, ...]


def stamp(path: Path) -> tuple[str, int, int]:
    """The name, size and modification time of a file. If one changes, what was decoded from it is out of date."""
    status = path.stat()
    return str(path.absolute()), status.st_size, status.st_mtime_ns


class Source(NamedTuple):
    """What was decoded."""

    name: str
    """A readable name for people who look into the cache."""
    identity: object
    """Which data it is."""
    state: object
    """Its version, such as the stamps of its files. Images decoded from another version are removed."""


def load_or_decode(cache: Path, source: Source, decode: Callable[[], tuple[Shape, Iterable[Bytes]]]) -> Bytes:
    """The uint8 array (N, …) of `source`, memory-mapped from the cache, or decoded into it first.

    `decode` returns the shape and blocks of rows. If the cache cannot be written to, it is called each time.
    """
    folder = cache / "decoded"
    stem = f"{source.name}-{_short_hash(source.identity)}"
    path = folder / f"{stem}-{_short_hash(source.state)}.npy"
    with contextlib.suppress(OSError, ValueError):  # missing or damaged: decode again
        array = map_npy(path)
        if array.dtype == np.uint8:
            return array
    shape, blocks = decode()
    if not _is_writable(folder):
        return np.concatenate(list(blocks)).reshape(shape)
    with replacing(path) as beside:
        _write(beside, shape, blocks)
    # Exactly as many characters as a hash has, so that a source whose name begins alike keeps its files.
    for old in folder.glob(f"{stem}-{'?' * len(_short_hash(None))}.npy"):
        if old != path:
            old.unlink(missing_ok=True)
    return map_npy(path)


def _short_hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def _write(path: Path, shape: Shape, blocks: Iterable[Bytes]) -> None:
    # Written in order rather than through a memory map: there a full disk would kill the process with a signal.
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call, unused-ignore]
        written = sum(file.write(np.ascontiguousarray(block).data) for block in blocks)
    if written != math.prod(shape):
        raise AssertionError


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
