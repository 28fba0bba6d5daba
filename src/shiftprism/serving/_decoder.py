"""The process that decodes images: `python -m shiftprism.serving._decoder`. What crashes or hangs here, hangs alone.

It reads a frame from standard input: the number of images, whether they are grey, the most pixels of one, and each
image with its length. It answers with one line of numbers for each image: status, height, width, or the length of a
text that says what is wrong. The parent then says for each image whether it wants the pixels.
"""

import io
import struct
import sys
import warnings
import zlib
from typing import BinaryIO, NamedTuple

from PIL import Image, ImageOps, UnidentifiedImageError

# Formats that are pixels. Those that are programs or call others (EPS, WMF, PDF) are never opened.
_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
_ORIENTATION = 0x0112  # the EXIF tag that says how the camera was held
FRAME, LENGTH, ANSWER = struct.Struct("<I?Q"), struct.Struct("<Q"), struct.Struct("<BII")
GOOD, UNREADABLE, UNKNOWN_FORMAT, TOO_LARGE = range(4)
_BASE_MEMORY = 512 << 20
_BYTES_PER_PIXEL = 16  # the decoder's own, RGBA, white below it, and RGB


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Opened(NamedTuple):
    image: Image.Image
    height: int
    width: int


def main(source: BinaryIO, target: BinaryIO) -> None:
    """Answer frames until the input ends."""
    Image.init()
    warnings.simplefilter("ignore")  # truncated EXIF and the like
    formats = [each for each in _FORMATS if each in Image.OPEN]
    while header := source.read(FRAME.size):
        count, grey, most_pixels = FRAME.unpack(header)
        _limit_memory(_BASE_MEMORY + _BYTES_PER_PIXEL * most_pixels)
        lengths = [LENGTH.unpack(source.read(LENGTH.size))[0] for _ in range(count)]
        contents = [source.read(length) for length in lengths]
        opened = [_answer_open(content, formats, most_pixels, target) for content in contents]
        target.flush()
        wanted = source.read(count)
        for is_wanted in wanted:
            one = opened.pop(0)  # so that its pixels go before the next image is decoded
            if one is not None and is_wanted:
                _answer_pixels(one, grey, target)
        target.flush()


def _limit_memory(size: int) -> None:
    """A file that claims little and needs much ends in a MemoryError here, not in the machine's swap."""
    try:
        import resource
    except ImportError:  # Windows
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def _answer_open(content: bytes, formats: list[str], most_pixels: int, target: BinaryIO) -> _Opened | None:
    try:
        opened = _open(content, formats, most_pixels)
    except _Refused as error:
        _write_error(error.status, str(error), target)
        return None
    target.write(ANSWER.pack(GOOD, opened.height, opened.width))
    return opened


def _open(content: bytes, formats: list[str], most_pixels: int) -> _Opened:
    Image.MAX_IMAGE_PIXELS = None  # the limit is ours, below
    try:
        # Pillow decodes a PNG when it is asked for EXIF that may come after the pixels
        may_turn = _check_png(content) if content.startswith(b"\x89PNG") else True
        image = Image.open(io.BytesIO(content), formats=formats)
        if image.width * image.height > most_pixels:
            size = f"{image.width} × {image.height} pixels"
            raise _Refused(TOO_LARGE, f"it has {size}, more than the {most_pixels:,} that an image may have")
        if image.mode in ("F", "I"):
            raise _Refused(UNREADABLE, "its pixels are floats or 32-bit numbers of an unknown range")
        turned = may_turn and image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
    except _Refused:
        raise
    except UnidentifiedImageError:
        raise _Refused(UNKNOWN_FORMAT, "it is in no image format that is read here, or it is damaged") from None
    except MemoryError:
        raise _Refused(TOO_LARGE, "it needs more memory than an image may have") from None
    except Exception as error:  # Pillow's decoders raise almost anything on broken files
        raise _Refused(UNREADABLE, f"it is damaged ({type(error).__name__})") from None
    return _Opened(image, *((image.width, image.height) if turned else (image.height, image.width)))


def _check_png(content: bytes) -> bool:
    """Whether a PNG may carry EXIF. Compares the checksum of every chunk: Pillow leaves out those that hold pixels."""
    view, place, may_turn = memoryview(content), 8, False
    while True:
        if place + 12 > len(view):
            raise _Refused(UNREADABLE, "the PNG is cut")
        length, kind = struct.unpack_from(">I4s", view, place)
        if place + 12 + length > len(view):
            raise _Refused(UNREADABLE, "the PNG is cut")
        (expected,) = struct.unpack_from(">I", view, place + 8 + length)
        if zlib.crc32(view[place + 4 : place + 8 + length]) != expected:
            raise _Refused(UNREADABLE, "a checksum of the PNG is wrong")
        may_turn |= kind in (b"eXIf", b"tEXt", b"zTXt", b"iTXt")
        if kind == b"IEND":
            return may_turn
        place += 12 + length


def _answer_pixels(opened: _Opened, grey: bool, target: BinaryIO) -> None:
    """(C, H, W) as bytes."""
    try:
        image = to_mode(opened.image, grey)
        planes = [band.tobytes() for band in image.split()]
        shape = image.height, image.width
    except MemoryError:
        _write_error(TOO_LARGE, "it needs more memory than an image may have", target)
        return
    except Exception as error:
        _write_error(UNREADABLE, f"it is damaged ({type(error).__name__})", target)
        return
    target.write(ANSWER.pack(GOOD, *shape))
    for plane in planes:
        target.write(plane)


def to_mode(image: Image.Image, grey: bool) -> Image.Image:
    """The image upright, in RGB or grey, as images in folders are read: transparent pixels on white, 16 bits to 8."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16"):  # Pillow's own conversion would clip
        upright = _top_bytes(upright)
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        white.alpha_composite(upright.convert("RGBA"))
        upright = white
    return upright.convert("L" if grey else "RGB")


def _top_bytes(image: Image.Image) -> Image.Image:
    """The higher byte of 16-bit pixels."""
    place = 0 if image.mode.endswith("B") else 1  # big-endian: the higher byte comes first
    return Image.frombytes("L", image.size, image.tobytes()[place::2])


def _write_error(status: int, text: str, target: BinaryIO) -> None:
    content = text.encode()
    target.write(ANSWER.pack(status, len(content), 0))
    target.write(content)


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
