"""The processes that decode: the same pixels as images in folders, and alone in their crashes."""

import asyncio
import io
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from PIL import Image

from shiftprism.datasets._images import Picture, read_image, to_pixels
from shiftprism.serving._decoding import Decoders, Pixels, Request
from shiftprism.serving._problems import Problem

T = TypeVar("T")


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def made_image(mode: str = "RGB") -> Image.Image:
    rng = np.random.default_rng(0)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65536, (9, 14), dtype=np.uint16))
    image = Image.fromarray(rng.integers(0, 256, (9, 14, 4), dtype=np.uint8), "RGBA")
    return image if mode == "RGBA" else image.convert("RGB").convert(mode)


def rotated(kind: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(made_image(), kind, exif=exif)


FILES: dict[str, Callable[[], bytes]] = {
    "png": lambda: encode(made_image(), "PNG"),
    "grey": lambda: encode(made_image("L"), "PNG"),
    "alpha": lambda: encode(made_image("RGBA"), "PNG"),
    "palette": lambda: encode(made_image("P"), "PNG"),
    "palette with alpha": lambda: encode(made_image("P"), "PNG", transparency=3),
    "bits": lambda: encode(made_image("1"), "PNG"),
    "sixteen bits": lambda: encode(made_image("I;16"), "PNG"),
    "sixteen bits tiff": lambda: encode(made_image("I;16"), "TIFF"),
    "jpeg": lambda: encode(made_image(), "JPEG"),
    "cmyk": lambda: encode(made_image("CMYK"), "JPEG"),
    "turned": lambda: rotated("JPEG"),
    "turned png": lambda: rotated("PNG"),
    "animated": lambda: encode(made_image(), "GIF", save_all=True, append_images=[made_image("L").convert("RGB")]),
    "webp": lambda: encode(made_image("RGBA"), "WEBP", lossless=True),
    "bmp": lambda: encode(made_image(), "BMP"),
}


def run(work: Callable[[Decoders], Awaitable[T]], count: int = 1, time_limit: float = 60) -> T:
    async def start_and_stop() -> T:
        decoders = Decoders(count, time_limit)
        await decoders.start()
        try:
            return await work(decoders)
        finally:
            await decoders.close()

    return asyncio.run(start_and_stop())


def anything(height: int, width: int) -> None:
    return None


@pytest.mark.parametrize("grey", [False, True])
def test_pixels_are_those_of_images_in_folders(grey: bool) -> None:
    contents = {name: make() for name, make in FILES.items()}
    wanted = Request(grey, 1 << 20, anything)
    found = run(lambda decoders: decoders.decode(list(contents.values()), wanted), count=2)
    for (name, content), pixels in zip(contents.items(), found, strict=True):

        def read(content: bytes = content) -> bytes:
            return content

        expected = read_image(Picture(name, read), lambda image: to_pixels(image, None, grey))
        assert not isinstance(pixels, Problem), f"{name}: {pixels}"
        assert pixels.shape == expected.shape, name
        assert (pixels == expected).all(), name
    for turned in found[10:12]:
        assert not isinstance(turned, Problem)
        assert turned.shape[1:] == (14, 9), "turned upright"


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        (lambda png: png[:-20], 422),
        (lambda png: png[:50] + bytes([png[50] ^ 1]) + png[51:], 422),
        (lambda png: b"\x89PNG\r\n\x1a\n", 422),
        (lambda png: encode(made_image(), "JPEG")[:200], 422),
        (lambda png: b"%PDF-1.4 and more", 415),
        (lambda png: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415),
        (lambda png: b"", 415),
        (lambda png: encode(Image.new("F", (4, 4)), "TIFF"), 422),
        (lambda png: encode(Image.new("L", (2000, 2000)), "PNG"), 413),
    ],
)
def test_what_is_no_image_is_a_problem_of_its_own(spoil: Callable[[bytes], bytes], status: int) -> None:
    good = encode(made_image(), "PNG")
    before, bad, after = run(lambda d: d.decode([good, spoil(good), good], Request(False, 1 << 20, anything)))
    assert isinstance(bad, Problem)
    assert bad.status == status, bad.detail
    assert not isinstance(before, Problem)
    assert not isinstance(after, Problem)
    assert (before == after).all()


def test_what_is_not_accepted_is_not_decoded() -> None:
    def accept(height: int, width: int) -> None:
        if (height, width) != (9, 14):
            raise Problem(422, f"{height} × {width}")

    good, other = encode(made_image(), "PNG"), encode(Image.new("L", (5, 6)), "PNG")
    first, refused, last = run(lambda d: d.decode([good, other, good], Request(False, 1 << 20, accept)))
    assert isinstance(refused, Problem)
    assert refused.detail == "6 × 5"
    assert not isinstance(first, Problem)
    assert not isinstance(last, Problem)


def test_a_crash_costs_one_image_and_one_process() -> None:
    """A decoder that is killed while it works: the image is refused, and the next ones are decoded."""
    good = encode(made_image(), "PNG")

    async def work(decoders: Decoders) -> "tuple[list[Pixels | Problem], list[Pixels | Problem], int]":
        def kill(height: int, width: int) -> None:
            if height == 6:
                os.kill(decoders._all[0]._process.pid, signal.SIGKILL)

        killer = encode(Image.new("L", (5, 6)), "PNG")
        hit = await decoders.decode([good, killer, good], Request(False, 1 << 20, kill))
        after = await decoders.decode([good], Request(False, 1 << 20, anything))
        return hit, after, decoders.restarts

    hit, after, restarts = run(work)
    assert [isinstance(each, Problem) for each in hit] == [False, True, False]
    assert not isinstance(after[0], Problem)
    assert restarts == 2, "the part, and the image alone"


def test_a_decoder_that_hangs_is_replaced() -> None:
    good = encode(made_image(), "PNG")

    async def work(decoders: Decoders) -> "tuple[list[Pixels | Problem], list[Pixels | Problem]]":
        os.kill(decoders._all[0]._process.pid, signal.SIGSTOP)
        hung = await decoders.decode([good], Request(False, 1 << 20, anything))
        decoders._time_limit = 60
        return hung, await decoders.decode([good], Request(False, 1 << 20, anything))

    (hung,), (after,) = run(work, time_limit=0.5)
    assert isinstance(hung, Problem)
    assert hung.status == 422
    assert not isinstance(after, Problem)


def test_memory_of_a_decoder_is_bounded() -> None:
    from pathlib import Path

    async def work(decoders: Decoders) -> str:
        await decoders.decode([encode(made_image(), "PNG")], Request(False, 1 << 20, anything))
        return Path(f"/proc/{decoders._all[0]._process.pid}/limits").read_text()

    if not Path("/proc/self/limits").exists():
        pytest.skip("no /proc on this system")
    (line,) = [line for line in run(work).splitlines() if line.startswith("Max address space")]
    assert int(line.split()[3]) < 1 << 30
