"""Weather: snow, frost and fog."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from shiftprism.corruptions._filters import Matrix, apply, to_bytes, zoom_matrix
from shiftprism.corruptions._frost import crops
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._sampling import motion
from shiftprism.corruptions._severities import Severities

# mean and standard deviation of the grains, enlargement, threshold, radius and σ of the smear, weight of the image
_SNOW = Severities(
    cifar=(
        (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    imagenet=(
        (0.1, 0.3, 3.0, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
)
# weights of the image and of the frost, pixels of a photograph for one pixel of the image
_FROST = Severities(
    cifar=((1.0, 0.2, 5), (1.0, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
    imagenet=((1.0, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
)
# strength, decay
_FOG = Severities(
    cifar=((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    imagenet=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
)
_LUMINANCE = torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)


def luminance(images: Tensor) -> Tensor:
    """(N, 1, H, W): the luminance of RGB images, or the one channel of grey ones."""
    return (images * _LUMINANCE).sum(1, keepdim=True) if images.shape[1] == 3 else images.float()


def snow(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Bright grains smeared downwards, added to a paler image twice: once upright and once rotated by 180°.

    Where lengths are scaled up, grains are drawn on the grid of the parameters' own side and enlarged to the image, so
    it has as many.
    """
    row, scale = _SNOW.fit(images, severity, parameters)
    mean, spread, enlargement, threshold, radius, sigma, weight = row
    size = height, width = [round(length / max(1.0, scale)) for length in images.shape[2:]]
    noise = draws.normals(1, height, width) * spread + mean
    layer = apply(_zoom(height, width, max(1.0, enlargement * min(1.0, scale))), noise).view(noise.shape)
    flakes = to_bytes(layer.where(layer >= threshold, 0) * 255)
    for axis, (length, grid) in enumerate(zip(images.shape[2:], size, strict=True), 2):
        flakes = flakes.index_select(axis, torch.arange(length) * grid // length)  # nearest neighbour
    angles = draws.uniforms() * 90 - 135
    falling = to_bytes(motion(flakes, radius, sigma, angles, scale))
    pale = torch.maximum(images.float(), luminance(images) * 1.5 + 127.5)
    return to_bytes(weight * images + (1 - weight) * pale + falling + falling.rot90(2, (2, 3)).float())


@lru_cache(maxsize=5)
def _zoom(height: int, width: int, factor: float) -> Matrix:
    return zoom_matrix(height, width, factor).astype(np.float32)


def frost(images: Tensor, severity: int, draws: Draws, parameters: str = "auto", folder: str | None = None) -> Tensor:
    """A weighted sum with a random crop of a photograph of frost: from `folder`, or a drawn texture."""
    (image_weight, frost_weight, pitch), scale = _FROST.fit(images, severity, parameters)
    height, width = images.shape[2:]
    ice = crops(height, width, pitch / scale, draws, folder)
    return to_bytes(image_weight * images + frost_weight * (ice if images.shape[1] == 3 else luminance(ice)))


def fog(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """A plasma fractal added, then everything scaled back to the image's own brightest value."""
    (strength, decay), _ = _FOG.fit(images, severity, parameters)
    height, width = images.shape[2:]
    size = 2 ** (max(height, width) - 1).bit_length()
    mist = plasma(draws.uniforms(size * size - 1) * 2 - 1, size, decay)[:, None, :height, :width]
    brightest = images.amax((1, 2, 3), keepdim=True).float()
    return to_bytes((images + 255 * strength * mist) * (brightest / (brightest + 255 * strength)))


def plasma(noise: Tensor, size: int, decay: float) -> Tensor:
    """(N, size, size) fractals by the diamond-square algorithm on a torus, `size` a power of two, each from 0 to 1.

    `noise` (N, size² − 1) is uniform in ±1. Each step adds w² times its share of the noise, with w = 100 at the first
    step and w / decay at the next.
    """
    heights = torch.zeros(len(noise), size, size)
    wibble, used, step = 100.0, 0, size
    while step >= 2:
        count, half = size // step, step // 2
        # The order within a step fixes which random number goes where: the centres of the squares, then the middles of
        # their upper sides, then of their left sides.
        wibbles = wibble**2 * noise[:, used : used + 3 * count**2].reshape(-1, 3, count, count)
        corner = heights[:, ::step, ::step]
        pairs = corner + corner.roll(-1, 1)
        centre = (pairs + pairs.roll(-1, 2)) / 4 + wibbles[:, 0]
        heights[:, half::step, half::step] = centre
        heights[:, ::step, half::step] = (centre + centre.roll(1, 1) + corner + corner.roll(-1, 2)) / 4 + wibbles[:, 1]
        heights[:, half::step, ::step] = (centre + centre.roll(1, 2) + corner + corner.roll(-1, 1)) / 4 + wibbles[:, 2]
        wibble, used, step = wibble / decay, used + 3 * count**2, half
    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)
