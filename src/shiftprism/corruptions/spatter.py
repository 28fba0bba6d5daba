"""Spatter: drops of water whose edges catch the light, or mud."""

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn import functional

from shiftprism.corruptions._filters import blur, scale_of, steady, to_bytes
from shiftprism.corruptions._moves import correlate
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions.weather import grey

_SPATTER = (  # mean, std and blur of the layer, threshold, strength of water or blur of mud, mud?
    (0.62, 0.1, 0.7, 0.7, 0.5, False),
    (0.65, 0.1, 0.8, 0.7, 0.5, False),
    (0.65, 0.3, 1.0, 0.69, 0.5, False),
    (0.65, 0.1, 0.7, 0.69, 0.6, True),
    (0.65, 0.1, 0.5, 0.68, 0.6, True),
)
_WATER = torch.tensor([175.0, 238.0, 238.0]).reshape(1, 3, 1, 1)
_MUD = torch.tensor([63.0, 42.0, 20.0]).reshape(1, 3, 1, 1)
_LIGHT = np.array([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]])  # from the upper left
_BOX = np.ones((3, 3))
_SOBEL = np.array([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
_TAN22 = 13573 / 2**15  # tan 22.5° as OpenCV has it


def spatter(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """A layer of blurred noise, where it exceeds a threshold, laid over the picture as turquoise water or brown mud."""
    mean, spread, sigma, threshold, strength, mud = _SPATTER[severity - 1]
    scale = scale_of(images)
    noise = draws.normals(1, *images.shape[2:]) * (spread * steady(sigma, scale))
    layer = blur(noise, sigma, scale) + mean
    colour = (_MUD if mud else _WATER) if images.shape[1] == 3 else grey(_MUD if mud else _WATER)
    if mud:
        mask = blur(layer > threshold, strength, scale)
        mask = mask.where(mask >= 0.8, 0)
        return to_bytes(images * (1 - mask) + colour * mask)
    drops = layer.where(layer >= threshold, 0).mul(255).clamp(0, 255).byte().float()
    lit = drops * _lighting(drops, 20 * scale)
    lit = lit / lit.amax((2, 3), keepdim=True).clamp(min=1)
    return to_bytes(images + lit * (strength * colour))


def _lighting(drops: Tensor, farthest: float) -> Tensor:
    """(N, 1, H, W) light on drops: slopes of the equalised distance from their edges, in whole grey levels."""
    edges = _edges(drops).squeeze(1).numpy()
    distance = np.stack([ndimage.distance_transform_edt(~edge) if edge.any() else np.inf + edge for edge in edges])
    near = torch.from_numpy(distance).float().clamp(max=farthest).unsqueeze(1)
    smooth = (correlate(near, _BOX) / 9 + 1e-3).clamp(max=255).long()
    slopes = correlate(_equalised(smooth), _LIGHT).clamp(0, 255)
    return (correlate(slopes, _BOX) / 9 + 0.5).byte().float()


def _equalised(levels: Tensor) -> Tensor:
    """Whole grey levels (N, 1, H, W) spread until each is about as frequent: OpenCV's histogram equalisation."""
    index = levels.flatten(1)
    counts = torch.zeros(len(index), 256).scatter_add_(1, index, torch.ones(index.shape))
    lowest = index.amin(1, keepdim=True)
    least = counts.gather(1, lowest)
    others = index.shape[1] - least
    table = ((counts.cumsum(1) - least) * (255 / others.clamp(min=1)) + 0.5).clamp(0, 255).long()
    return torch.where(others > 0, table.gather(1, index), lowest).reshape(levels.shape).float()


def _edges(layer: Tensor) -> Tensor:
    """(N, 1, H, W) mask of Canny's edges in whole grey levels: thresholds 50 and 150 on |∂x| + |∂y|, 3 × 3 Sobel."""
    right = correlate(layer, _SOBEL, "edge")
    down = correlate(layer, _SOBEL.T, "edge")
    size = right.abs() + down.abs()
    flat = down.abs() < _TAN22 * right.abs()
    steep = down.abs() > (_TAN22 + 2) * right.abs()
    rising = (right < 0) != (down < 0)
    padded = functional.pad(size, (1, 1, 1, 1))
    height, width = layer.shape[2:]

    def beside(row: int, column: int) -> Tensor:
        return padded[:, :, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    across = (size > beside(0, -1)) & (size >= beside(0, 1))
    along = (size > beside(-1, 0)) & (size >= beside(1, 0))
    falling_ridge = (size > beside(-1, -1)) & (size > beside(1, 1))
    rising_ridge = (size > beside(-1, 1)) & (size > beside(1, -1))
    ridge = torch.where(flat, across, torch.where(steep, along, torch.where(rising, rising_ridge, falling_ridge)))
    possible = ridge & (size > 50)
    sure = possible & (size > 150)
    while True:  # weak edges count where they touch strong ones
        grown = possible & (correlate(sure.float(), _BOX) > 0)
        if torch.equal(grown, sure):
            return sure
        sure = grown
