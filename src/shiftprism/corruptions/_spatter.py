"""Spatter: drops of water whose edges catch the light, or mud."""

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional

from shiftprism.corruptions._filters import blur, noise_gain, to_bytes
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._sampling import correlate
from shiftprism.corruptions._severities import Severities
from shiftprism.corruptions._weather import luminance

# mean, standard deviation and blur of the layer, threshold, strength of the water or blur of the mud
_SPATTER = Severities(
    cifar=(
        (0.62, 0.1, 0.7, 0.7, 0.5),
        (0.65, 0.1, 0.8, 0.7, 0.5),
        (0.65, 0.3, 1.0, 0.69, 0.5),
        (0.65, 0.1, 0.7, 0.69, 0.6),
        (0.65, 0.1, 0.5, 0.68, 0.6),
    ),
    imagenet=(
        (0.65, 0.3, 4.0, 0.69, 0.6),
        (0.65, 0.3, 3.0, 0.68, 0.6),
        (0.65, 0.3, 2.0, 0.68, 0.5),
        (0.65, 0.3, 1.0, 0.65, 1.5),
        (0.67, 0.4, 1.0, 0.65, 1.5),
    ),
)
_FIRST_OF_MUD = 4  # the severity; the milder ones are water
# RGB, from 0 to 255.
_WATER = torch.tensor([175.0, 238.0, 238.0]).reshape(1, 3, 1, 1)
_MUD = torch.tensor([63.0, 42.0, 20.0]).reshape(1, 3, 1, 1)
_LIGHT = np.array([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]])  # an emboss filter: light from the upper left
_BOX = np.ones((3, 3))
_SOBEL = np.array([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
_TAN22 = 13573 / 2**15  # tan 22.5° in OpenCV's fixed point: another rounding would pick other edges


def spatter(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Blurred noise above a threshold, laid over the image as turquoise water or brown mud."""
    (mean, spread, sigma, threshold, strength), scale = _SPATTER.fit(images, severity, parameters)
    mud = severity >= _FIRST_OF_MUD
    noise = draws.normals(1, *images.shape[2:]) * (spread * noise_gain(sigma, scale))
    layer = blur(noise, sigma, scale) + mean
    colour = (_MUD if mud else _WATER) if images.shape[1] == 3 else luminance(_MUD if mud else _WATER)
    if mud:
        mask = blur(layer > threshold, strength, scale)
        mask = mask.where(mask >= 0.8, 0)  # mud has hard edges
        return to_bytes(images * (1 - mask) + colour * mask)
    drops = layer.where(layer >= threshold, 0).mul(255).clamp(0, 255).byte().float()
    lit = drops * _lighting(drops, 20 * scale)
    lit = lit / lit.amax((2, 3), keepdim=True).clamp(min=1)
    return to_bytes(images + lit * (strength * colour))


def _lighting(drops: Tensor, farthest: float) -> Tensor:
    """(N, 1, H, W): the light on drops, from the slope of the equalised distance to their edges, in integers."""
    edges = _edges(drops).squeeze(1).numpy()
    # An image without edges gets an infinite distance: no slope, no light. The published code divides 0 by 0 there.
    distance = np.stack([ndimage.distance_transform_edt(~edge) if edge.any() else np.inf + edge for edge in edges])
    near = torch.from_numpy(distance).float().clamp(max=farthest).unsqueeze(1)
    smooth = (correlate(near, _BOX) / 9 + 1e-3).clamp(max=255).long()
    slopes = correlate(_equalise(smooth), _LIGHT).clamp(0, 255)
    return (correlate(slopes, _BOX) / 9 + 0.5).byte().float()


def _equalise(levels: Tensor) -> Tensor:
    """Integer grey levels (N, 1, H, W) spread until all are about equally frequent: OpenCV's histogram equalisation."""
    index = levels.flatten(1)
    counts = torch.zeros(len(index), 256).scatter_add_(1, index, torch.ones(index.shape))
    lowest = index.amin(1, keepdim=True)
    least = counts.gather(1, lowest)
    others = index.shape[1] - least
    table = ((counts.cumsum(1) - least) * (255 / others.clamp(min=1)) + 0.5).clamp(0, 255).long()
    return torch.where(others > 0, table.gather(1, index), lowest).reshape(levels.shape).float()


def _edges(layer: Tensor) -> Tensor:
    """(N, 1, H, W): the mask of Canny's edges, with thresholds 50 and 150 on |∂x| + |∂y| of the 3 × 3 Sobel filter."""
    right = correlate(layer, _SOBEL, "edge")
    down = correlate(layer, _SOBEL.T, "edge")
    size = right.abs() + down.abs()
    # The direction of the gradient in four sectors: horizontal, vertical and two diagonals. tan 67.5° = tan 22.5° + 2.
    flat = down.abs() < _TAN22 * right.abs()
    steep = down.abs() > (_TAN22 + 2) * right.abs()
    rising = (right < 0) != (down < 0)
    padded = functional.pad(size, (1, 1, 1, 1))
    height, width = layer.shape[2:]

    def neighbour(row: int, column: int) -> Tensor:
        return padded[:, :, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    # Only a maximum along the gradient is an edge. Of two equal neighbours in a row or column only the first counts, as
    # in OpenCV.
    across = (size > neighbour(0, -1)) & (size >= neighbour(0, 1))
    along = (size > neighbour(-1, 0)) & (size >= neighbour(1, 0))
    falling_ridge = (size > neighbour(-1, -1)) & (size > neighbour(1, 1))
    rising_ridge = (size > neighbour(-1, 1)) & (size > neighbour(1, -1))
    ridge = torch.where(flat, across, torch.where(steep, along, torch.where(rising, rising_ridge, falling_ridge)))
    weak = ridge & (size > 50)
    edges = weak & (size > 150)
    while True:  # weak edges count where they touch strong ones
        grown = weak & (correlate(edges.float(), _BOX) > 0)
        if torch.equal(grown, edges):
            return edges
        edges = grown
