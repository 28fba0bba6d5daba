"""Blurs: their lengths are CIFAR-C's at side 32 and scale with the side."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats
from shiftprism.corruptions._filters import (
    Matrix,
    apply,
    blur,
    exact,
    exact_rows,
    resized,
    scale_of,
    to_bytes,
    zoom_matrix,
)
from shiftprism.corruptions._moves import correlate, motion
from shiftprism.corruptions._random import Draws

_DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius, σ of its edge
_GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # σ, times shuffled
_MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, σ
# Where the steps of .01 from 1 stop. Rounding makes the first two reach 1.06 and 1.11, as in the publisher's files.
_ZOOM = (1.06, 1.11, 1.16, 1.21, 1.26)
_GAUSSIAN = (0.4, 0.6, 0.7, 0.8, 1.0)  # σ


def defocus_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Each point spread over a disk with a soft edge, the picture mirrored about its border pixels: out of focus."""
    return to_bytes(correlate(images.float(), _disk(*_DEFOCUS[severity - 1], scale_of(images))))


def _disk(radius: float, softness: float, scale: float) -> Floats:
    """Pixels within `radius` of the centre, softened by a Gaussian three pixels wide, then resized."""
    distance = np.arange(-2.0, 3.0)
    kernel: Floats = (distance[:, None] ** 2 + distance**2 <= radius**2).astype(float)
    soft = np.exp(-0.5 * (np.arange(-1, 2) / softness) ** 2)
    for axis in (0, 1):
        kernel = np.apply_along_axis(np.convolve, axis, kernel, soft, "same")
    return exact(resized(kernel, scale))


def glass_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A slight blur, pixels displaced by up to one, the blur again: frosted glass."""
    sigma, times = _GLASS[severity - 1]
    scale = scale_of(images)
    delta = max(1, round(scale))
    pixels = to_bytes(blur(images, sigma, scale)).flatten(2)
    for _ in range(times):
        steps = (draws.uniforms(2, *images.shape[2:]) * (2 * delta)).long() - delta
        pixels = pixels.gather(2, shuffled(steps, delta).unsqueeze(1).expand_as(pixels))
    return to_bytes(blur(pixels.view(images.shape), sigma, scale))


def shuffled(steps: Tensor, delta: int) -> Tensor:
    """(N, H·W): where each pixel's value comes from after one pass of the shuffle by `steps` (N, 2, H, W), −δ … δ − 1.

    The pass goes backwards, from the last pixel to the first, and overwrites each (but a border) by the pixel a step
    away. The publisher's code means to swap the two, but both sides of its assignment are views of one array, so it
    copies; its files hold copies, and so do we. A pixel that reads one already overwritten gets what that was given:
    such chains are followed to their ends, twice as far at each turn.
    """
    height, width = steps.shape[2:]
    row, column = torch.arange(height)[:, None], torch.arange(width)
    inside = (row > delta) & (row <= height - delta) & (column > delta) & (column <= width - delta)
    here = row * width + column
    source = (here + (steps[:, 0] * width + steps[:, 1]) * inside).flatten(1)
    passed = source > here.flatten()
    if not bool(passed.any()):
        return source
    passed &= inside.flatten()[source]
    follow = torch.where(passed, source, here.flatten())
    for _ in range((height * width).bit_length()):
        follow = follow.gather(1, follow)
    return source.gather(1, follow)


def motion_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Smeared one way along an angle uniform in ±45°: a camera that moved."""
    radius, sigma = _MOTION[severity - 1]
    angles = draws.uniforms() * 90 - 45
    return to_bytes(motion(images, radius, sigma, angles, scale_of(images)))


def zoom_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """The mean of the picture and of its middle enlarged 1.00, 1.01, … times: moving towards it."""
    height, width = images.shape[2:]
    return to_bytes(apply(_zooms(height, width, severity), images)).view(images.shape)


@lru_cache(maxsize=5)
def _zooms(height: int, width: int, severity: int) -> Matrix:
    total = zoom_matrix(height, width, 1.0)
    for factor in np.arange(1, _ZOOM[severity - 1], 0.01):
        total = total + zoom_matrix(height, width, float(factor))
    return exact_rows(total)


def gaussian_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A Gaussian blur, the edge repeated."""
    return to_bytes(blur(images, _GAUSSIAN[severity - 1], scale_of(images)))
