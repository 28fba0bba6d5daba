"""Photographs of frost, and textures that stand in for them."""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.random import Generator, Philox
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from torch import Tensor

from shiftprism._checks import Floats, wrong
from shiftprism.corruptions._random import Draws

_PITCH = 5  # pixels of a photograph for one of a 32 × 32 image: the publisher scales by 0.2
_UNUSED = "frost6.jpg"  # the publisher's sixth photograph, which its generator never draws
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
# What was measured of the five photographs in use: mean of red, green and blue, standard deviation, and how much of the
# variance is in patches and in tufts; the rest is in grain. The second and the third are one photograph.
_LIKE = (
    ((78, 149, 166), 18, 0.50, 0.18),
    ((201, 205, 214), 22, 0.50, 0.10),
    ((201, 205, 214), 22, 0.50, 0.10),
    ((138, 153, 166), 29, 0.38, 0.08),
    ((112, 123, 135), 43, 0.42, 0.16),
)
_WIDTHS = (60.0, 8.0, 0.85)  # σ of patches, tufts and grain, in pixels of a photograph
Sheet = NDArray[np.uint8]


def crops(height: int, width: int, scale: float, draws: Draws, folder: str | None) -> Tensor:
    """(N, 3, H, W): for each image a random piece of one of the photographs."""
    resized = _resized(_chosen(folder), scale, height, width)
    pieces = np.empty((len(draws.generators), 3, height, width), np.uint8)
    for piece, generator in zip(pieces, draws.generators, strict=True):
        sheet = resized[generator.integers(len(resized))]
        top, left = (generator.integers(sheet.shape[axis] - size) for axis, size in ((1, height), (2, width)))
        piece[:] = sheet[:, top : top + height, left : left + width]
    return torch.from_numpy(pieces)


@lru_cache(maxsize=4)
def _resized(folder: str, scale: float, height: int, width: int) -> tuple[Sheet, ...]:
    """The photographs at the size they are cut from, mirrored where they are too small for one piece."""
    return tuple(_at_pitch(sheet, _PITCH / scale, height, width) for sheet in _loaded(folder))


def _at_pitch(sheet: Sheet, pitch: float, height: int, width: int) -> Sheet:
    rows, columns = ((np.arange(round(size / pitch)) + 0.5) * pitch - 0.5 for size in sheet.shape[1:])
    places = np.meshgrid(rows, columns, indexing="ij")
    small = np.stack(
        [ndimage.map_coordinates(channel.astype(float), places, order=1, mode="nearest") for channel in sheet]
    )
    missing = [max(0, size + 1 - have) for size, have in zip((height, width), small.shape[1:], strict=True)]
    return np.pad(small.round().astype(np.uint8), ((0, 0), (0, missing[0]), (0, missing[1])), "symmetric")


def sheets(folder: str | None = None) -> tuple[Sheet, ...]:
    """The (3, H, W) photographs in a folder, in the order of their names; drawn textures where no folder is given."""
    return _loaded(_chosen(folder))


def _chosen(folder: str | None) -> str:
    return os.environ.get("SHIFTPRISM_FROST", "") if folder is None else folder


@lru_cache(maxsize=4)
def _loaded(folder: str) -> tuple[Sheet, ...]:
    if not folder:
        return tuple(_drawn(number, *like) for number, like in enumerate(_LIKE))
    paths = sorted(path for path in Path(folder).glob("*") if path.suffix.lower() in _SUFFIXES and path.name != _UNUSED)
    if not paths:
        got = f"{folder} without any" if Path(folder).is_dir() else f"{folder}, which is no folder"
        advice = "put frost1.png … frost5.jpg of hendrycks/robustness there, or give no folder for drawn textures"
        raise wrong("photographs", "a folder of photographs", got, advice)
    return tuple(_opened(path) for path in paths)


def _opened(path: Path) -> Sheet:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def _drawn(number: int, mean: tuple[int, int, int], spread: float, patches: float, tufts: float) -> Sheet:
    """A texture with the brightness and the grain of a photograph: Gaussian noise of three widths."""
    height, width = 400, 600
    noise = Generator(Philox(key=number)).standard_normal((3, height, width))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    layers = [
        np.fft.irfft2(np.fft.rfft2(plane) * np.exp(-2 * (np.pi * sigma * frequency) ** 2), (height, width))
        for plane, sigma in zip(noise, _WIDTHS, strict=True)
    ]
    shares = zip((patches, tufts, 1 - patches - tufts), layers, strict=True)
    texture = sum(share**0.5 * (layer - layer.mean()) / layer.std() for share, layer in shares)
    levels: Floats = spread * texture + np.reshape(mean, (3, 1, 1))
    return levels.round().clip(0, 255).astype(np.uint8)
