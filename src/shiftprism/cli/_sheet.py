"""Drawing for `shiftprism data show`: rows of labelled images, large enough for a person to see."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from shiftprism._files import replacing

# Images are enlarged by an integer factor to at least the first number of pixels, and are never wider than the second.
_SIDE = (96, 256)
_GAP, _MARGIN, _TEXT = 6, 12, 13
_INK, _PALE, _PAPER = (30, 30, 30), (110, 110, 110), (255, 255, 255)


class Row(NamedTuple):
    """One row of a sheet."""

    label: str
    """The text at the left, of one or more lines."""
    images: Tensor
    """uint8 (n, C, H, W)."""
    captions: Sequence[str] = ()
    """A text above each image, or none at all."""


def draw(title: str, rows: Sequence[Row]) -> Image.Image:
    """A title, and rows with their labels at the left and the captions above their images."""
    font = ImageFont.load_default(_TEXT)
    width, height = cell_size(rows[0].images)
    left = _MARGIN + max(_text_width(row.label, font) for row in rows) + _MARGIN
    captions = [_TEXT + _GAP if row.captions else 0 for row in rows]
    total_width = left + max(len(row.images) for row in rows) * (width + _GAP) + _MARGIN
    total_height = 3 * _MARGIN + _TEXT + sum(captions) + len(rows) * (height + _GAP)
    sheet = Image.new("RGB", (max(total_width, _text_width(title, font) + 2 * _MARGIN), total_height), _PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN, _MARGIN), title, _INK, font)
    top = 2 * _MARGIN + _TEXT
    for row, above in zip(rows, captions, strict=True):
        pen.multiline_text((_MARGIN, top + above), row.label, _INK, font)
        for number, image in enumerate(row.images):
            at = left + number * (width + _GAP)
            if above:
                pen.text((at, top), _shorten(row.captions[number], width, font), _PALE, font)
            sheet.paste(_draw_image(image, (width, height)), (at, top + above))
        top += above + height + _GAP
    return sheet


def write(path: Path, title: str, rows: Sequence[Row]) -> None:
    """Write the sheet to a PNG file, which appears only when it is complete."""
    with replacing(path) as beside:
        draw(title, rows).save(beside, "PNG")


def cell_size(images: Tensor) -> tuple[int, int]:
    """The (width, height) at which an image is shown.

    >>> import torch
    >>> cell_size(torch.zeros(1, 3, 32, 32)), cell_size(torch.zeros(1, 3, 512, 1024))
    ((96, 96), (256, 128))
    """
    height, width = images.shape[2:]
    factor: float = ceil(_SIDE[0] / min(height, width))
    if max(height, width) * factor > _SIDE[1]:
        factor = min(1.0, _SIDE[1] / max(height, width))
    return max(1, round(width * factor)), max(1, round(height * factor))


def _draw_image(image: Tensor, size: tuple[int, int]) -> Image.Image:
    array = image.cpu().permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
    larger = size[0] >= picture.width  # enlarged pixels stay squares: one sees what the model sees
    return picture.resize(size, Image.Resampling.NEAREST if larger else Image.Resampling.LANCZOS)


def _text_width(text: str, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont") -> int:
    return ceil(max(font.getlength(line) for line in text.split("\n")))


def _shorten(text: str, width: int, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont") -> str:
    """The text, or as much of it as fits into `width` pixels."""
    if _text_width(text, font) <= width:
        return text
    while text and _text_width(text + "…", font) > width:
        text = text[:-1]
    return text + "…"
