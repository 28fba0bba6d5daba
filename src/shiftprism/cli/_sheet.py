"""The drawing behind `shiftprism data show`: rows of labelled images, large enough for a person to see."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from shiftprism._files import replacing

_SIDE = (96, 256)
"""Images are enlarged by a whole factor to the first, or reduced to the second."""
_GAP, _MARGIN, _TEXT = 6, 12, 13
_INK, _PALE, _PAPER = (30, 30, 30), (110, 110, 110), (255, 255, 255)


class Row(NamedTuple):
    """One row of a sheet."""

    label: str
    """Stands at the left; may have lines."""
    images: Tensor
    """uint8 (n, C, H, W)."""
    captions: Sequence[str] = ()
    """One above each image, or none at all."""


def draw(title: str, rows: Sequence[Row]) -> Image.Image:
    """The sheet: a title, and each row with its label at the left and the captions above its images."""
    font = ImageFont.load_default(_TEXT)
    width, height = cell(rows[0].images)
    left = _MARGIN + max(_broad(row.label, font) for row in rows) + _MARGIN
    captions = [_TEXT + _GAP if row.captions else 0 for row in rows]
    broad = left + max(len(row.images) for row in rows) * (width + _GAP) + _MARGIN
    tall = 3 * _MARGIN + _TEXT + sum(captions) + len(rows) * (height + _GAP)
    sheet = Image.new("RGB", (max(broad, _broad(title, font) + 2 * _MARGIN), tall), _PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((_MARGIN, _MARGIN), title, _INK, font)
    top = 2 * _MARGIN + _TEXT
    for row, above in zip(rows, captions, strict=True):
        pen.multiline_text((_MARGIN, top + above), row.label, _INK, font)
        for number, image in enumerate(row.images):
            at = left + number * (width + _GAP)
            if above:
                pen.text((at, top), _cut(row.captions[number], width, font), _PALE, font)
            sheet.paste(_picture(image, (width, height)), (at, top + above))
        top += above + height + _GAP
    return sheet


def write(path: Path, title: str, rows: Sequence[Row]) -> None:
    """Draw the sheet into a PNG file, whole or not at all."""
    with replacing(path) as beside:
        draw(title, rows).save(beside, "PNG")


def cell(images: Tensor) -> tuple[int, int]:
    """(width, height) an image is shown at.

    >>> import torch
    >>> cell(torch.zeros(1, 3, 32, 32)), cell(torch.zeros(1, 3, 512, 1024))
    ((96, 96), (256, 128))
    """
    height, width = images.shape[2:]
    factor: float = ceil(_SIDE[0] / min(height, width))
    if max(height, width) * factor > _SIDE[1]:
        factor = min(1.0, _SIDE[1] / max(height, width))
    return max(1, round(width * factor)), max(1, round(height * factor))


def _picture(image: Tensor, size: tuple[int, int]) -> Image.Image:
    array = image.cpu().permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
    larger = size[0] >= picture.width  # enlarged pixels stay squares, so that one sees what the model sees
    return picture.resize(size, Image.Resampling.NEAREST if larger else Image.Resampling.LANCZOS)


def _broad(text: str, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont") -> int:
    return ceil(max(font.getlength(line) for line in text.split("\n")))


def _cut(text: str, width: int, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont") -> str:
    """The text, or as much of it as is not broader than an image."""
    if _broad(text, font) <= width:
        return text
    while text and _broad(text + "…", font) > width:
        text = text[:-1]
    return text + "…"
