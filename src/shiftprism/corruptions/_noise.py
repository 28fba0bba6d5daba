"""Noise. Every value of every channel changes on its own: only the strength depends on the size of the images."""

import numpy as np
import torch
from torch import Tensor

from shiftprism.corruptions._filters import to_bytes
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._severities import Severities

# σ, of values in [0, 1]
_GAUSSIAN = Severities(cifar=(0.04, 0.06, 0.08, 0.09, 0.10), imagenet=(0.08, 0.12, 0.18, 0.26, 0.38))
# photons at full brightness
_SHOT = Severities(cifar=(500, 250, 100, 75, 50), imagenet=(60, 25, 12, 5, 3))
# fraction of the values that is replaced
_IMPULSE = Severities(cifar=(0.01, 0.02, 0.03, 0.05, 0.07), imagenet=(0.03, 0.06, 0.09, 0.17, 0.27))
# σ, relative to the value
_SPECKLE = Severities(cifar=(0.06, 0.1, 0.12, 0.16, 0.2), imagenet=(0.15, 0.2, 0.35, 0.45, 0.6))


def gaussian_noise(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """x + σ n with n standard normal: poor light."""
    (sigma,), _ = _GAUSSIAN.fit(images, severity, parameters)
    return to_bytes(draws.normals(*images.shape[1:]).mul_(255 * sigma).add_(images))


def shot_noise(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Poisson(c x) / c: the graininess of few photons."""
    (rate,), _ = _SHOT.fit(images, severity, parameters)
    means = images.numpy() * (rate / 255)
    counts = np.stack([generator.poisson(mean) for generator, mean in zip(draws.generators, means, strict=True)])
    return to_bytes(torch.from_numpy(counts).float().mul_(255 / rate))


def impulse_noise(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """A fraction of the values becomes 0 or 255, each with the same probability: bit errors."""
    (fraction,), _ = _IMPULSE.fit(images, severity, parameters)
    half = fraction / 2
    chance = draws.uniforms(*images.shape[1:])
    return images.masked_fill(chance < half, 255).masked_fill_(chance >= 1 - half, 0)


def speckle_noise(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """x + σ x n with n standard normal: noise that grows with the light."""
    (sigma,), _ = _SPECKLE.fit(images, severity, parameters)
    return to_bytes(draws.normals(*images.shape[1:]).mul_(sigma).add_(1).mul_(images))
