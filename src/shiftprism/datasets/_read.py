"""Image files one by one, as production has them: no classes, any size, and some of them broken."""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._devices import compute_alone, count_cores
from shiftprism._files import check_file
from shiftprism.datasets._images import GREY, MOST_BYTES, Picture, read_image, to_pixels
from shiftprism.datasets._safe import Bytes

NOTES = frozenset((".txt", ".csv", ".tsv", ".json", ".xml", ".md", ".yaml", ".yml", ".db", ".ini", ".html", ".pdf"))
"""What people keep beside their images."""
_AHEAD = 3
"""So many groups of files for each thread may be decoded before they are asked for."""
_GROUP, _GROUP_BYTES = 16, 1 << 16
"""Files, and their bytes, that a thread decodes at a time: handing a small file over takes as long as decoding it."""
_GROUP_PIXELS = 1 << 22
"""A group ends early where its images have so many pixels: small files may hold large pictures."""
_PIXELS_AHEAD = 1 << 26
"""So many pixels may be decoded at a time: large pictures wait for each other."""


class EncodedImage(NamedTuple):
    """An image file that lies in an archive or on another machine."""

    path: Path
    """Its name."""
    read: Callable[[], bytes]
    """Returns its bytes; an OSError is the reason why there are none. Called in a thread that decodes."""


class ImageFile(NamedTuple):
    """What was read from a file: an image, or the reason why there is none."""

    path: Path
    image: Tensor | None
    """(C, H, W), uint8, with C = 1 for a grey file and 3 for any other; or what `prepare` made of it."""
    problem: str
    """Why there is no image, in one line; empty where there is one."""


def list_images(*places: "str | Path") -> list[Path]:
    """The files that are named, and every file in the folders that are named and below them, in order of their names.

    Hidden files and notes (.txt, .json, …) in a folder are left out. Any other file is listed, whatever its suffix: if
    it is no image, `read_images` says so.
    """
    files: list[Path] = []
    for place in map(Path, places):
        files += sorted(_walk(place)) if place.is_dir() else [place]
    return files


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        # a link to a folder is not followed; it is listed, so that nothing is missing without a word
        if not hidden and path.suffix.lower() not in NOTES and (path.is_symlink() or not path.is_dir()):
            yield path


def read_images(
    paths: "Iterable[str | Path | EncodedImage]",
    prepare: Callable[[Tensor], Tensor] | None = None,
    threads: int | None = None,
) -> Iterator[ImageFile]:
    """Each file as an `ImageFile`, in order: its image, or the reason why it has none. No file ends the others.

    What is no file of its own, such as an image in an archive, is an `EncodedImage` among the `paths`.

    Transparent pixels are composed on white, EXIF's orientation is applied, of an animation the first frame is read,
    and 16-bit grey is scaled to 8 bits. A file that is cut, damaged, too large or no image has a reason instead.

    `prepare` turns the uint8 image (C, H, W) into what is wanted, such as `classifier.prepare`; a ValueError of it is
    a reason, too. Decoding and `prepare` run in `threads`, by default one for each core. A few images are read ahead of
    the one that is asked for, so memory does not grow with their number.

    >>> [file.problem for file in read_images(["nothing.png"])]
    ['No such file or directory']
    """
    threads = threads or count_cores()
    if threads < 1:
        raise wrong("threads", "1 or more", threads, "leave it out for one a core")
    return _read_ahead(paths, prepare, threads)


def _read_ahead(
    paths: "Iterable[str | Path | EncodedImage]", prepare: Callable[[Tensor], Tensor] | None, threads: int
) -> Iterator[ImageFile]:
    budget = _Budget(_PIXELS_AHEAD)
    pending: deque[tuple[list[EncodedImage], Future[list[ImageFile]]]] = deque()
    pool = ThreadPoolExecutor(threads, initializer=compute_alone)

    def take_first() -> Iterator[ImageFile]:
        files, future = pending.popleft()
        read = future.result()
        budget.advance()
        yield from read
        for file in files[len(read) :]:  # where the group ended early
            yield _read_file(file, prepare, _Budget(_PIXELS_AHEAD), 0)

    try:
        for number, files in enumerate(_group(paths)):
            pending.append((files, pool.submit(_read_files, files, prepare, budget, number)))
            if len(pending) >= _AHEAD * threads:
                yield from take_first()
        while pending:
            yield from take_first()
    finally:  # also where nobody asks for the rest
        budget.close()
        pool.shutdown(cancel_futures=True)


def _group(paths: "Iterable[str | Path | EncodedImage]") -> Iterator[list[EncodedImage]]:
    """Small files together, each other one alone: so is what lies in an archive, whose size is not known."""
    group: list[EncodedImage] = []
    size = 0
    for path in paths:
        if isinstance(path, EncodedImage):
            file, own = path, _GROUP_BYTES
        else:
            file, own = EncodedImage(Path(path), partial(_read_bytes, Path(path))), _size(path)
        if group and (len(group) == _GROUP or size + own > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(file)
        size += own
    if group:
        yield group


def _size(path: "str | Path") -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):  # reading it gives the reason
        return _GROUP_BYTES


class _Budget:
    """Pixels that may be in memory at a time. The group that is asked for next never waits, so none waits for ever."""

    def __init__(self, most: int) -> None:
        self.left, self.first, self.closed = most, 0, False
        self.used: dict[int, int] = {}
        self.changed = threading.Condition()

    def take(self, number: int, pixels: int) -> None:
        """Wait until group `number` may have so many pixels more."""
        with self.changed:
            self.changed.wait_for(lambda: self.left >= pixels or number == self.first or self.closed)
            self.left -= pixels
            self.used[number] = self.used.get(number, 0) + pixels

    def give_back(self, number: int, pixels: int) -> None:
        """So many pixels of group `number` are no longer in memory."""
        with self.changed:
            self.left += pixels
            self.used[number] = self.used.get(number, 0) - pixels
            self.changed.notify_all()

    def advance(self) -> None:
        """The first group has been handed over."""
        with self.changed:
            self.left += self.used.pop(self.first, 0)
            self.first += 1
            self.changed.notify_all()

    def close(self) -> None:
        """Nobody waits any longer."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


def _read_files(
    files: list[EncodedImage], prepare: Callable[[Tensor], Tensor] | None, budget: _Budget, number: int
) -> list[ImageFile]:
    """The first of the files, and most often all of them."""
    read: list[ImageFile] = []
    pixels = 0
    for file in files:
        read.append(_read_file(file, prepare, budget, number))
        image = read[-1].image
        pixels += 0 if image is None else image.shape[-1] * image.shape[-2]
        if pixels >= _GROUP_PIXELS:
            break
    return read


def _read_file(
    file: EncodedImage, prepare: Callable[[Tensor], Tensor] | None, budget: _Budget, number: int
) -> ImageFile:
    taken = 0

    def decode(picture: Image.Image) -> Bytes:
        nonlocal taken
        budget.take(number, picture.width * picture.height)
        taken = picture.width * picture.height
        pixels = to_pixels(picture, None, picture.mode in GREY)
        # a copy of its own: Pillow's array is read-only, and torch wants to write; by channel it takes two thirds
        copied = np.empty(pixels.shape, np.uint8)
        for channel, values in zip(copied, pixels, strict=True):
            channel[:] = values
        return copied

    try:
        pixels = read_image(Picture("it", file.read, file.path.suffix), decode)
        image = torch.from_numpy(pixels)
        image = image if prepare is None else prepare(image)
    except (ValueError, OSError) as error:
        budget.give_back(number, taken)
        return ImageFile(file.path, None, _describe(error))
    budget.give_back(number, taken - image.shape[-1] * image.shape[-2])
    return ImageFile(file.path, image, "")


def _read_bytes(path: Path) -> bytes:
    size = check_file(path).stat().st_size
    if size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"the file has {size:,} bytes, and at most {MOST_BYTES:,} are read", str(path))
    return path.read_bytes()


def _describe(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(reason.split()).rstrip(".") or type(error).__name__
