"""Noise. Every value of every channel changes on its own, so these corruptions do not scale with the side."""

import numpy as np
import torch
from torch import Tensor

from shiftprism.corruptions._filters import to_bytes
from shiftprism.corruptions._random import Draws

# One number for each severity.
_GAUSSIAN = (0.04, 0.06, 0.08, 0.09, 0.10)  # σ, of values in [0, 1]
_SHOT = (500, 250, 100, 75, 50)  # photons at full brightness
_IMPULSE = (0.01, 0.02, 0.03, 0.05, 0.07)  # fraction of the values that is replaced
_SPECKLE = (0.06, 0.1, 0.12, 0.16, 0.2)  # σ, relative to the value


def gaussian_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """x + σ n with n standard normal: poor light."""
    sigma = _GAUSSIAN[severity - 1]
    return to_bytes(draws.normals(*images.shape[1:]).mul_(255 * sigma).add_(images))


def shot_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Poisson(c x) / c: the graininess of few photons."""
    rate = _SHOT[severity - 1]
    means = images.numpy() * (rate / 255)
    counts = np.stack([generator.poisson(mean) for generator, mean in zip(draws.generators, means, strict=True)])
    return to_bytes(torch.from_numpy(counts).float().mul_(255 / rate))


def impulse_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A fraction of the values becomes 0 or 255, each with the same probability: bit errors."""
    half = _IMPULSE[severity - 1] / 2
    chance = draws.uniforms(*images.shape[1:])
    return images.masked_fill(chance < half, 255).masked_fill_(chance >= 1 - half, 0)


def speckle_noise(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """x + σ x n with n standard normal: noise that grows with the light."""
    sigma = _SPECKLE[severity - 1]
    return to_bytes(draws.normals(*images.shape[1:]).mul_(sigma).add_(1).mul_(images))
