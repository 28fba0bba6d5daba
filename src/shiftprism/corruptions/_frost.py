"""Photographs of frost, and drawn textures for those who do not have them."""

import os
import struct
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
from shiftprism._files import check_file
from shiftprism.corruptions._random import Draws

_UNUSED = "frost6.jpg"  # the publisher's sixth photograph, which its generator never draws
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_FORMATS = ("PNG", "JPEG", "WEBP")  # whatever the suffix says: a PostScript file would be run
# What was measured of the five photographs in use: the mean of red, green and blue, the standard deviation, and which
# part of the variance is in patches and in tufts. The rest is in grain. The second and the third are one photograph.
_MEASURED = (
    ((78, 149, 166), 18, 0.50, 0.18),
    ((201, 205, 214), 22, 0.50, 0.10),
    ((201, 205, 214), 22, 0.50, 0.10),
    ((138, 153, 166), 29, 0.38, 0.08),
    ((112, 123, 135), 43, 0.42, 0.16),
)
_WIDTHS = (60.0, 8.0, 0.85)  # σ of patches, tufts and grain, in pixels of a photograph
Texture = NDArray[np.uint8]


def crops(height: int, width: int, pitch: float, draws: Draws, folder: str | None) -> Tensor:
    """(N, 3, H, W): for each image a random crop of a random texture, of which it has every `pitch`-th pixel."""
    scaled = _scale_textures(_choose_folder(folder), pitch, height, width)
    pieces = np.empty((len(draws.generators), 3, height, width), np.uint8)
    for piece, generator in zip(pieces, draws.generators, strict=True):
        texture = scaled[generator.integers(len(scaled))]
        top, left = (generator.integers(texture.shape[axis] - size) for axis, size in ((1, height), (2, width)))
        piece[:] = texture[:, top : top + height, left : left + width]
    return torch.from_numpy(pieces)


@lru_cache(maxsize=4)
def _scale_textures(folder: str, pitch: float, height: int, width: int) -> tuple[Texture, ...]:
    return tuple(_scale_texture(texture, pitch, height, width) for texture in _load_textures(folder))


def _scale_texture(texture: Texture, pitch: float, height: int, width: int) -> Texture:
    """The texture with every `pitch`-th pixel, mirrored where it is too small for a crop of height × width."""
    rows, columns = ((np.arange(round(size / pitch)) + 0.5) * pitch - 0.5 for size in texture.shape[1:])
    places = np.meshgrid(rows, columns, indexing="ij")
    small = np.stack(
        [ndimage.map_coordinates(channel.astype(float), places, order=1, mode="nearest") for channel in texture]
    )
    missing = [max(0, size + 1 - have) for size, have in zip((height, width), small.shape[1:], strict=True)]
    return np.pad(small.round().astype(np.uint8), ((0, 0), (0, missing[0]), (0, missing[1])), "symmetric")


def textures(folder: str | None = None) -> tuple[Texture, ...]:
    """The (3, H, W) photographs in `folder` or $SHIFTPRISM_FROST, by name; drawn ones where neither is given."""
    return _load_textures(_choose_folder(folder))


def frost_source(folder: str | None = None) -> str:
    """ "photographed" where frost takes its crops from `folder` or $SHIFTPRISM_FROST, else "drawn"."""
    return "photographed" if _choose_folder(folder) else "drawn"


def _choose_folder(folder: str | None) -> str:
    return os.environ.get("SHIFTPRISM_FROST", "") if folder is None else folder


@lru_cache(maxsize=4)
def _load_textures(folder: str) -> tuple[Texture, ...]:
    if not folder:
        return tuple(_draw_texture(number, *measured) for number, measured in enumerate(_MEASURED))
    paths = sorted(path for path in Path(folder).glob("*") if path.suffix.lower() in _SUFFIXES and path.name != _UNUSED)
    if not paths:
        got = f"{folder} without any" if Path(folder).is_dir() else f"{folder}, which is not a folder"
        advice = "put frost1.png … frost5.jpg of hendrycks/robustness there, or give no folder to use drawn textures"
        raise wrong("photographs", "a folder of photographs", got, advice)
    return tuple(_read_photograph(path) for path in paths)


def _read_photograph(path: Path) -> Texture:
    try:
        with Image.open(check_file(path), formats=_FORMATS) as image:
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except (OSError, ValueError, SyntaxError, struct.error, Image.DecompressionBombError) as error:
        got = f"{path} ({getattr(error, 'strerror', None) or error})"
        raise wrong("photographs", "a folder of whole photographs", got, "replace or remove this file") from error


def _draw_texture(number: int, mean: tuple[int, int, int], spread: float, patches: float, tufts: float) -> Texture:
    """A texture with the brightness and the grain of a photograph: the sum of Gaussian noise of three widths."""
    height, width = 400, 600
    noise = Generator(Philox(key=number)).standard_normal((3, height, width))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    # A Gaussian blur of 60 pixels is a product in frequency space, where it costs no more than one of a pixel.
    layers = [
        np.fft.irfft2(np.fft.rfft2(plane) * np.exp(-2 * (np.pi * sigma * frequency) ** 2), (height, width))
        for plane, sigma in zip(noise, _WIDTHS, strict=True)
    ]
    shares = zip((patches, tufts, 1 - patches - tufts), layers, strict=True)
    texture = sum(share**0.5 * (layer - layer.mean()) / layer.std() for share, layer in shares)
    levels: Floats = spread * texture + np.reshape(mean, (3, 1, 1))
    return levels.round().clip(0, 255).astype(np.uint8)
