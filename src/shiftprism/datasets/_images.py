"""Image files of any format and size -> uint8 (N, C, H, W)."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import PurePath
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from shiftprism._checks import wrong
from shiftprism._devices import count_cores
from shiftprism._npz import damage_error
from shiftprism.datasets._safe import Bytes

# Formats that are pixels. Those that are programs or call others (EPS, WMF, PDF) are never opened.
_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
MOST_PIXELS = 1 << 26
"""An image with more pixels than this (67 million, 8192 × 8192) is taken for a decompression bomb."""
MOST_BYTES = 1 << 28
"""A larger file is not read."""
_BLOCK = 256
_ORIENTATION = 0x0112  # the EXIF tag that says how the camera was held
GREY = ("1", "L", "I", "I;16", "I;16B", "I;16L", "I;16N")
"""Pillow's modes of one channel without transparency; "I" is read where its range is known."""

Result = TypeVar("Result")


class UnreadableImage(ValueError):
    """A file that may be whole, but is no image of a kind that is read here."""


class Picture(NamedTuple):
    """An image file, in a folder or in an archive."""

    where: str
    """Its name in errors."""
    read: Callable[[], bytes]
    """Returns its bytes."""
    suffix: str = ""
    """That of the file, where `where` is not its name."""


def suffixes() -> frozenset[str]:
    """The suffixes of image files that can be read, in lower case, with their dot."""
    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in _formats())


@cache
def _formats() -> tuple[str, ...]:
    """Those of the formats that this Pillow was built with."""
    Image.init()
    return tuple(kind for kind in _FORMATS if kind in Image.OPEN)


def decode(pictures: Sequence[Picture], size: int | None, grey: bool | None) -> tuple[tuple[int, ...], Iterator[Bytes]]:
    """The shape (N, C, H, W) of `pictures` and an iterator over blocks of their rows.

    With a `size` every image is scaled to fill size × size (bicubic) and cropped about its centre. Without one they
    must all have the same size. C is 1 where every image is grey (or `grey` says so), otherwise 3.
    """
    if size is None or grey is None:
        shapes = list(_map_parallel(_read_shape, pictures))
        side = (size, size) if size is not None else _common_size(pictures, [shape[:2] for shape in shapes])
        grey = all(shape[2] for shape in shapes) if grey is None else grey
    else:
        side = (size, size)
    return (len(pictures), 1 if grey else 3, side[1], side[0]), _decode_blocks(pictures, side, grey)


def _decode_blocks(pictures: Sequence[Picture], side: tuple[int, int], grey: bool) -> Iterator[Bytes]:
    def decode_picture(picture: Picture) -> Bytes:
        return read_image(picture, lambda image: to_pixels(image, side, grey))

    for first in range(0, len(pictures), _BLOCK):
        yield np.stack(list(_map_parallel(decode_picture, pictures[first : first + _BLOCK])))


def _map_parallel(work: Callable[[Picture], Result], pictures: Sequence[Picture]) -> Iterator[Result]:
    """`work` on each picture. Pillow releases the interpreter lock while it decodes, so threads are enough."""
    with ThreadPoolExecutor(count_cores()) as pool:
        for first in range(0, len(pictures), _BLOCK):  # a million waiting tasks would take a gigabyte
            yield from pool.map(work, pictures[first : first + _BLOCK])


def _read_shape(picture: Picture) -> tuple[int, int, bool]:
    """Width, height, and whether it is grey."""
    return read_image(picture, lambda image: (*_upright_size(image), image.mode in GREY))


def _upright_size(image: Image.Image) -> tuple[int, int]:
    turned = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
    return (image.height, image.width) if turned else image.size


def _common_size(pictures: Sequence[Picture], sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    for picture, size in zip(pictures, sizes, strict=True):
        if size != sizes[0]:
            first = f"{sizes[0][0]} × {sizes[0][1]} ({pictures[0].where})"
            got = f"{first} and {size[0]} × {size[1]} ({picture.where})"
            raise wrong("size", "given for images of different sizes", got, "give a side such as 32 to scale them to")
    return sizes[0]


def read_image(picture: Picture, use: Callable[[Image.Image], Result]) -> Result:
    """What `use` returns for the opened image. Every failure of an image file is an error that names file and byte."""
    content = picture.read()
    if len(content) > MOST_BYTES:
        raise damage_error(picture.where, MOST_BYTES, f"an image file of {len(content)} bytes")
    if content.startswith(b"\x89PNG"):
        check_png(content, picture.where)
    file = io.BytesIO(content)
    try:
        with Image.open(file, formats=_formats()) as image:
            if image.mode == "F" or (image.mode == "I" and image.format != "PPM"):
                problem = "its pixels are floats or 32-bit numbers of an unknown range; convert it to 8 or 16 bits"
                raise UnreadableImage(f"{picture.where} is not read: {problem}.")
            if image.width * image.height <= MOST_PIXELS:
                return use(image)
            problem = (
                f"it has {image.width} × {image.height} pixels, and at most {MOST_PIXELS:,} are read; scale it down"
            )
            raise UnreadableImage(f"{picture.where} is not read: {problem}.")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        problem = f"a decompression bomb ({error})"
    except UnreadableImage:
        raise
    except UnidentifiedImageError:
        suffix = picture.suffix or PurePath(picture.where).suffix
        damaged = "" if suffix and suffix.lower() not in suffixes() else ", or is damaged at byte 0"
        raise UnreadableImage(f"{picture.where} is not in an image format we read{damaged}.") from None
    except Exception as error:  # Pillow's decoders raise almost anything on broken files
        raise damage_error(picture.where, file.tell(), f"not a readable image ({error})") from error
    raise damage_error(picture.where, file.tell(), problem)


def check_png(content: "bytes | bytearray", where: str) -> None:
    """Compare the checksum of every chunk of a PNG. Pillow does not do so for the chunks that hold pixels."""
    view, place = memoryview(content), 8
    while True:
        if place + 12 > len(view):
            raise damage_error(where, len(view), "the PNG is cut")
        length, kind = struct.unpack_from(">I4s", view, place)
        if place + 12 + length > len(view):
            raise damage_error(where, len(view), f"the PNG is cut in a chunk {kind!r}")
        (expected,) = struct.unpack_from(">I", view, place + 8 + length)
        if zlib.crc32(view[place + 4 : place + 8 + length]) != expected:
            raise damage_error(where, place, f"the checksum of a chunk {kind!r} is wrong")
        if kind == b"IEND":
            return
        place += 12 + length


def to_pixels(image: Image.Image, side: tuple[int, int] | None, grey: bool) -> Bytes:
    """(C, H, W): the image upright, in RGB or grey, scaled and cropped to fill `side` = (width, height)."""
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits to 8; Pillow's own conversion would clip
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:  # on white, as a page shows it; Pillow would show what is hidden below
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    mode = "L" if grey else "RGB"
    image = image if image.mode == mode else image.convert(mode)
    if side is not None and image.size != side:
        image = ImageOps.fit(image, side, Image.Resampling.BICUBIC)
    array = np.asarray(image)
    return array[None] if grey else array.transpose(2, 0, 1)


def resize(images: Bytes, size: int) -> Bytes:
    """(N, C, size, size): each image of (N, C, H, W), C 1 or 3, scaled to fill the square and cropped at its centre."""
    out = np.empty((*images.shape[:2], size, size), np.uint8)
    grey = images.shape[1] == 1
    for number, pixels in enumerate(images):
        image = Image.fromarray(pixels[0] if grey else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
        out[number] = to_pixels(image, (size, size), grey)
    return out
