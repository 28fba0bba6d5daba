"""Image files of any format and size -> uint8 (N, C, H, W)."""

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageOps

from shiftprism._checks import wrong
from shiftprism.datasets._safe import Bytes, damaged

# Formats that are pixels. Those that are programs or call others (EPS, WMF, PDF) stay closed.
_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
MOST_PIXELS = 1 << 26
"""More pixels than this in one image is taken for a decompression bomb: 67 million, 8192 × 8192."""
_MOST_BYTES = 1 << 28
_BLOCK = 256

Made = TypeVar("Made")


class Picture(NamedTuple):
    """An image file, in a folder or in an archive."""

    where: str
    """What an error calls it."""
    read: Callable[[], bytes]
    """Its bytes."""


def suffixes() -> frozenset[str]:
    """The endings of the image files that are read, lower case, with their dot."""
    return frozenset(end for end, kind in Image.registered_extensions().items() if kind in _formats())


@cache
def _formats() -> tuple[str, ...]:
    """Those of the formats that this Pillow was built with."""
    Image.init()
    return tuple(kind for kind in _FORMATS if kind in Image.OPEN)


def decode(pictures: Sequence[Picture], size: int | None, grey: bool | None) -> tuple[tuple[int, ...], Iterator[Bytes]]:
    """The shape (N, C, H, W) and the blocks of rows of `pictures`.

    With a `size` every image is scaled to fill size × size (bicubic) and cut about its centre; without one they must
    all have the same. C is 1 where every image is grey (or `grey` says so), otherwise 3.
    """
    if size is None or grey is None:
        shapes = list(_parallel(_shape, pictures))
        side = (size, size) if size is not None else _common(pictures, [shape[:2] for shape in shapes])
        grey = all(shape[2] for shape in shapes) if grey is None else grey
    else:
        side = (size, size)
    return (len(pictures), 1 if grey else 3, side[1], side[0]), _blocks(pictures, side, grey)


def _blocks(pictures: Sequence[Picture], side: tuple[int, int], grey: bool) -> Iterator[Bytes]:
    def one(picture: Picture) -> Bytes:
        return opened(picture, lambda image: pixels(image, side, grey))

    for first in range(0, len(pictures), _BLOCK):
        yield np.stack(list(_parallel(one, pictures[first : first + _BLOCK])))


def _parallel(work: Callable[[Picture], Made], pictures: Sequence[Picture]) -> Iterator[Made]:
    """Pillow lets go of the interpreter while it decodes, so threads are enough."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for first in range(0, len(pictures), _BLOCK):  # a million tasks at once would be a gigabyte of them
            yield from pool.map(work, pictures[first : first + _BLOCK])


def _shape(picture: Picture) -> tuple[int, int, bool]:
    return opened(picture, lambda image: (*_upright_size(image), image.mode in ("1", "L", "I;16")))


def _upright_size(image: Image.Image) -> tuple[int, int]:
    turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    return (image.height, image.width) if turned else image.size


def _common(pictures: Sequence[Picture], sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    for picture, size in zip(pictures, sizes, strict=True):
        if size != sizes[0]:
            first = f"{sizes[0][0]} × {sizes[0][1]} ({pictures[0].where})"
            got = f"{first} and {size[0]} × {size[1]} ({picture.where})"
            raise wrong("size", "given for images of different sizes", got, "pass size=32, say, to have them resized")
    return sizes[0]


def opened(picture: Picture, use: Callable[[Image.Image], Made]) -> Made:
    """What `use` makes of the image; every way an image file can fail becomes an error that names file and byte."""
    content = picture.read()
    if len(content) > _MOST_BYTES:
        raise damaged(picture.where, _MOST_BYTES, f"an image file of {len(content)} bytes")
    if content.startswith(b"\x89PNG"):
        check_png(content, picture.where)
    file = io.BytesIO(content)
    try:
        with Image.open(file, formats=_formats()) as image:
            if image.width * image.height <= MOST_PIXELS:
                return use(image)
            problem = f"it claims {image.width} × {image.height} pixels, a decompression bomb"
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        problem = f"a decompression bomb ({error})"
    except Exception as error:  # Pillow's decoders raise almost anything on broken files
        raise damaged(picture.where, file.tell(), f"not a readable image ({error})") from error
    raise damaged(picture.where, file.tell(), problem)


def check_png(content: "bytes | bytearray", where: str) -> None:
    """Walk through the chunks of a PNG and compare their check sums, which Pillow does not do for pixels."""
    view, place = memoryview(content), 8
    while True:
        if place + 12 > len(view):
            raise damaged(where, len(view), "the PNG breaks off")
        length, kind = struct.unpack_from(">I4s", view, place)
        if place + 12 + length > len(view):
            raise damaged(where, len(view), f"the PNG breaks off in a chunk {kind!r}")
        (expected,) = struct.unpack_from(">I", view, place + 8 + length)
        if zlib.crc32(view[place + 4 : place + 8 + length]) != expected:
            raise damaged(where, place, f"the check sum of a chunk {kind!r} is wrong")
        if kind == b"IEND":
            return
        place += 12 + length


def pixels(image: Image.Image, side: tuple[int, int] | None, grey: bool) -> Bytes:
    """(C, H, W): the image turned as its camera was held, in RGB or grey, filled into `side` = (width, height)."""
    image = ImageOps.exif_transpose(image)
    if image.mode == "I;16":  # 16 bits to 8; Pillow's own conversion would clip
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    image = image.convert("L" if grey else "RGB")
    if side is not None and image.size != side:
        image = ImageOps.fit(image, side, Image.Resampling.BICUBIC)
    array = np.asarray(image)
    return array[None] if grey else array.transpose(2, 0, 1)


def resized(images: Bytes, size: int) -> Bytes:
    """(N, C, size, size): each image of (N, C, H, W), C 1 or 3, scaled to fill the square and cut about its centre."""
    out = np.empty((*images.shape[:2], size, size), np.uint8)
    grey = images.shape[1] == 1
    for number, one in enumerate(images):
        image = Image.fromarray(one[0] if grey else np.ascontiguousarray(one.transpose(1, 2, 0)))
        out[number] = pixels(image, (size, size), grey)
    return out
