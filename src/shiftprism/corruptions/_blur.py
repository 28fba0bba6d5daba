"""Blurs."""

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
    to_bytes,
    zoom_matrix,
)
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._sampling import correlate, motion
from shiftprism.corruptions._severities import Severities

# radius of the disk, σ of its edge
_DEFOCUS = Severities(
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
# σ, farthest step, number of shuffles
_GLASS = Severities(
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
# radius, σ
_MOTION = Severities(
    cifar=((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
    imagenet=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)
# Where the zoom factors from 1 stop, and their step. The end is exclusive, but float rounding in `arange` makes some
# reach it (1.06 and 1.11 at side 32), as in the publisher's files.
_ZOOM = Severities(
    cifar=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    imagenet=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
)
_GAUSSIAN = Severities(cifar=(0.4, 0.6, 0.7, 0.8, 1.0), imagenet=(1, 2, 3, 4, 6))  # σ


def defocus_blur(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Each point spread over a disk with a soft edge, the image mirrored about its border pixels: out of focus."""
    (radius, softness), scale = _DEFOCUS.fit(images, severity, parameters)
    return to_bytes(correlate(images.float(), _disk(radius, softness, scale)))


def _disk(radius: float, softness: float, scale: float) -> Floats:
    """Pixels within `radius` of the centre, softened by a Gaussian three pixels wide, then resized.

    Above radius 8 the Gaussian is five pixels wide, and the kernel ends where the disk does, as the publisher has it.
    The kernel is mirrored about its border while it is softened.
    """
    reach, width = (8, 1) if radius <= 8 else (int(radius), 2)
    distance = np.arange(-reach, reach + 1.0)
    kernel: Floats = (distance[:, None] ** 2 + distance**2 <= radius**2).astype(float)
    soft = np.exp(-0.5 * (np.arange(-width, width + 1) / softness) ** 2)
    for axis in (0, 1):
        padded = np.pad(kernel, [(width, width) if axis == each else (0, 0) for each in (0, 1)], "reflect")
        kernel = np.apply_along_axis(np.convolve, axis, padded, soft, "valid")
    return round_kernel(resize_kernel(kernel, scale))


def glass_blur(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """A slight blur, pixels displaced by up to one (four on large images), the blur again: frosted glass."""
    (sigma, farthest, times), scale = _GLASS.fit(images, severity, parameters)
    delta = max(1, round(farthest * scale))
    pixels = to_bytes(blur(images, sigma, scale)).flatten(2)
    for _ in range(round(times)):
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


def motion_blur(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Smeared to one side along an angle uniform in ±45°: a moving camera."""
    (radius, sigma), scale = _MOTION.fit(images, severity, parameters)
    angles = draws.uniforms() * 90 - 45
    return to_bytes(motion(images, radius, sigma, angles, scale))


def zoom_blur(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """The mean of the image and of its middle enlarged 1.00, 1.01, … times: a camera moving towards it."""
    height, width = images.shape[2:]
    (stop, step), _ = _ZOOM.fit(images, severity, parameters)
    return to_bytes(apply(_zoom_blur_matrix(height, width, stop, step), images)).view(images.shape)


@lru_cache(maxsize=5)
def _zoom_blur_matrix(height: int, width: int, stop: float, step: float) -> Matrix:
    total = zoom_matrix(height, width, 1.0)  # the image itself, besides the enlargement of 1.00
    for factor in np.arange(1, stop, step):
        total = total + zoom_matrix(height, width, float(factor))
    return round_rows(total)


def gaussian_blur(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """A Gaussian blur, with the edge repeated."""
    (sigma,), scale = _GAUSSIAN.fit(images, severity, parameters)
    return to_bytes(blur(images, sigma, scale))
