"""Blurs. Their lengths are CIFAR-C's at side 32 and scale with the side."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats
from shiftprism.corruptions._filters import (
    Matrix,
    apply,
    blur,
    resize_kernel,
    round_kernel,
    round_rows,
    scale_of,
    to_bytes,
    zoom_matrix,
)
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._sampling import correlate, motion

# One entry for each severity.
_DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius of the disk, σ of its edge
_GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # σ, number of shuffles
_MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, σ
# Where the zoom factors 1, 1.01, … stop. The end is exclusive, but float rounding in `arange` makes the first two reach
# 1.06 and 1.11, as in the publisher's files.
_ZOOM = (1.06, 1.11, 1.16, 1.21, 1.26)
_GAUSSIAN = (0.4, 0.6, 0.7, 0.8, 1.0)  # σ


def defocus_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Each point spread over a disk with a soft edge, the image mirrored about its border pixels: out of focus."""
    return to_bytes(correlate(images.float(), _disk(*_DEFOCUS[severity - 1], scale_of(images))))


def _disk(radius: float, softness: float, scale: float) -> Floats:
    """Pixels within `radius` of the centre, softened by a Gaussian three pixels wide, then resized."""
    distance = np.arange(-2.0, 3.0)
    kernel: Floats = (distance[:, None] ** 2 + distance**2 <= radius**2).astype(float)
    soft = np.exp(-0.5 * (np.arange(-1, 2) / softness) ** 2)
    for axis in (0, 1):
        kernel = np.apply_along_axis(np.convolve, axis, kernel, soft, "same")
    return round_kernel(resize_kernel(kernel, scale))


def glass_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A slight blur, pixels displaced by up to one (more on large images), the blur again: frosted glass."""
    sigma, times = _GLASS[severity - 1]
    scale = scale_of(images)
    delta = max(1, round(scale))
    pixels = to_bytes(blur(images, sigma, scale)).flatten(2)
    for _ in range(times):
        steps = (draws.uniforms(2, *images.shape[2:]) * (2 * delta)).long() - delta
        pixels = pixels.gather(2, shuffle_sources(steps, delta).unsqueeze(1).expand_as(pixels))
    return to_bytes(blur(pixels.view(images.shape), sigma, scale))


def shuffle_sources(steps: Tensor, delta: int) -> Tensor:
    """(N, H·W): the pixel that each value comes from after one shuffle by `steps` (N, 2, H, W), −δ … δ − 1.

    The shuffle goes backwards, from the last pixel to the first, and overwrites each pixel (except near the border) by
    the one a step away. The publisher's code means to swap the two, but both sides of its assignment are views of one
    array, so it copies. Its files hold copies, and so do ours.
    """
    height, width = steps.shape[2:]
    row, column = torch.arange(height)[:, None], torch.arange(width)
    inside = (row > delta) & (row <= height - delta) & (column > delta) & (column <= width - delta)
    here = row * width + column
    source = (here + (steps[:, 0] * width + steps[:, 1]) * inside).flatten(1)
    # A pixel that reads from a later place gets what the shuffle has already written there.
    overwritten = source > here.flatten()
    if not bool(overwritten.any()):
        return source
    overwritten &= inside.flatten()[source]
    follow = torch.where(overwritten, source, here.flatten())
    # Follow such chains to their ends. Each round doubles the distance covered, so log₂(H·W) rounds are enough.
    for _ in range((height * width).bit_length()):
        follow = follow.gather(1, follow)
    return source.gather(1, follow)


def motion_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Smeared to one side along an angle uniform in ±45°: a moving camera."""
    radius, sigma = _MOTION[severity - 1]
    angles = draws.uniforms() * 90 - 45
    return to_bytes(motion(images, radius, sigma, angles, scale_of(images)))


def zoom_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """The mean of the image and of its middle enlarged 1.00, 1.01, … times: a camera moving towards it."""
    height, width = images.shape[2:]
    return to_bytes(apply(_zoom_blur_matrix(height, width, severity), images)).view(images.shape)


@lru_cache(maxsize=5)
def _zoom_blur_matrix(height: int, width: int, severity: int) -> Matrix:
    total = zoom_matrix(height, width, 1.0)  # the image itself, besides the enlargement of 1.00
    for factor in np.arange(1, _ZOOM[severity - 1], 0.01):
        total = total + zoom_matrix(height, width, float(factor))
    return round_rows(total)


def gaussian_blur(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A Gaussian blur, with the edge repeated."""
    return to_bytes(blur(images, _GAUSSIAN[severity - 1], scale_of(images)))
