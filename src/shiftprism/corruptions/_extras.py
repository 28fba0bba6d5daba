"""Extra corruptions of our own. They share no operation with the 15 that models are tested on.

A detector or calibrator may therefore be fitted to them and still be tested on the 15: docs/corruptions.md argues each.
Results are rounded to the nearest grey level. A `sign` is +1 or −1, drawn for each image with equal probability.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from scipy import fft, ndimage, sparse
from torch import Tensor
from torch.nn import functional as F

from shiftprism._checks import Floats
from shiftprism.corruptions._filters import Matrix, apply, blur, to_bytes
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._severities import Severities

# exponent, or one over it
_GAMMA = Severities(cifar=(1.2, 1.4, 1.65, 2.0, 2.5), imagenet=(1.4, 1.7, 2.1, 2.7, 3.5))
# strength; at 1 the curve is level at both ends or in the middle
_TONE = Severities(cifar=(0.3, 0.45, 0.6, 0.8, 1.0), imagenet=(0.5, 0.65, 0.8, 0.9, 1.0))
# share of the light that is lost in a corner
_VIGNETTE = Severities(cifar=(0.25, 0.4, 0.55, 0.7, 0.85), imagenet=(0.4, 0.55, 0.7, 0.85, 0.95))
# ln of the largest gain
_CAST = Severities(cifar=(0.1, 0.18, 0.26, 0.36, 0.5), imagenet=(0.15, 0.25, 0.36, 0.48, 0.65))
# pixels that red and blue move, in opposite directions
_CHROMATIC = Severities(
    cifar=((1, 0), (1, 1), (2, 1), (2, 2), (3, 2)),
    imagenet=((2, 1), (3, 2), (4, 3), (6, 4), (8, 6)),
)
# σ, strength
_SHARPEN = Severities(
    cifar=((0.8, 0.5), (0.8, 1.0), (0.8, 1.6), (0.8, 2.5), (0.8, 4.0)),
    imagenet=((1.5, 1.0), (1.5, 1.8), (1.5, 3.0), (1.5, 4.5), (1.5, 6.5)),
)
# share of the frequencies of an axis that is kept
_RINGING = Severities(cifar=(0.8, 0.7, 0.6, 0.5, 0.4), imagenet=(0.5, 0.38, 0.28, 0.2, 0.15))
# side of the window, weight of the median
_MEDIAN = Severities(
    cifar=((3, 0.4), (3, 0.6), (3, 0.8), (3, 1.0), (5, 1.0)),
    imagenet=((3, 0.7), (3, 1.0), (5, 1.0), (7, 1.0), (9, 1.0)),
)
# number of levels
_POSTERIZE = Severities(cifar=(32, 20, 12, 8, 5), imagenet=(16, 10, 7, 5, 4))
_DITHERING = Severities(cifar=(24, 16, 10, 6, 4), imagenet=(12, 8, 6, 4, 3))
# side of a block; not 8, which is the side of JPEG's
_BLOCKS = Severities(cifar=(2, 3, 5, 6, 7), imagenet=(3, 5, 7, 11, 15))
# share of the side that is kept in between
_RESCALING = Severities(cifar=(0.9, 0.8, 0.7, 0.6, 0.5), imagenet=(0.6, 0.45, 0.35, 0.25, 0.2))
# share of the rows or columns
_LOST = Severities(cifar=(0.03, 0.06, 0.12, 0.2, 0.3), imagenet=(0.06, 0.12, 0.2, 0.3, 0.4))
# pixels between the two fields
_INTERLACING = Severities(cifar=(1, 2, 3, 4, 5), imagenet=(2, 4, 6, 9, 13))
# Bayer's 4 × 4 matrix, from 0 to 15
_BAYER = torch.tensor([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]])


def gamma(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """x^γ or x^(1/γ): a display or a file with another gamma."""
    (exponent,), _ = _GAMMA.fit(images, severity, parameters)
    levels = np.arange(256) / 255
    return _map_levels(images, [levels**power for power in (exponent**sign for sign in _signs(draws))])


def tone_curve(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """x − a sin(2πx)/(2π) with a of either sign: an S-shaped curve, or one that is flat in the middle."""
    (strength,), _ = _TONE.fit(images, severity, parameters)
    levels = np.arange(256) / 255
    wave = np.sin(2 * np.pi * levels) / (2 * np.pi)
    return _map_levels(images, [levels - sign * strength * wave for sign in _signs(draws)])


def _map_levels(images: Tensor, curves: list[Floats]) -> Tensor:
    """Each image through its curve, a table of 256 values in [0, 1]. A table rounds alike in every batch."""
    table = _round_bytes(torch.from_numpy(np.stack(curves) * 255))
    return table.gather(1, images.flatten(1).long()).view(images.shape)


def vignette(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """x (1 − a r²), r the distance from a centre drawn near the middle, 1 in a corner: a lens with dark corners."""
    (strength,), _ = _VIGNETTE.fit(images, severity, parameters)
    height, width = images.shape[2:]
    down, right = ((draws.uniforms(2, 1, 1) - 0.5) * 0.4).unbind(1)
    rows = torch.linspace(-1, 1, height)[:, None] - down
    columns = torch.linspace(-1, 1, width) - right
    light = 1 - strength * (rows.square() + columns.square()) / 2
    return _round_bytes(images * light.clamp_min(0).unsqueeze(1))


def colour_cast(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Red, green and blue times gains whose product is 1, of a hue drawn for each image: a wrong white balance.

    A grey image has no colour and stays as it is.
    """
    if images.shape[1] == 1:
        return images.clone()
    (strength,), _ = _CAST.fit(images, severity, parameters)
    gains = [
        [math.exp(strength * math.cos(2 * math.pi * (turn + channel / 3))) for channel in range(3)]
        for turn in draws.uniforms().tolist()
    ]
    return _round_bytes(images * torch.tensor(gains).reshape(-1, 3, 1, 1))


def chromatic_shift(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Red and blue moved by whole pixels in opposite directions, one of eight: a lens that bends colours apart.

    A grey image has one channel and stays as it is.
    """
    if images.shape[1] == 1:
        return images.clone()
    (red, blue), scale = _CHROMATIC.fit(images, severity, parameters)
    turns = (draws.uniforms() * 8).long()
    down = torch.tensor([0, 1, 1, 1, 0, -1, -1, -1])[turns]
    right = torch.tensor([1, 1, 0, -1, -1, -1, 0, 1])[turns]
    # a shift of 1 stays one where lengths are scaled down
    steps = [sign * max(min(1, round(move)), round(move * scale)) for sign, move in ((1, red), (-1, blue))]
    moved = [_shift(images[:, channel], down * step, right * step) for channel, step in zip((0, 2), steps, strict=True)]
    return torch.stack([moved[0], images[:, 1], moved[1]], 1)


def _shift(planes: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Planes (N, H, W) read `down` and `right` pixels (N,) away, with the edge repeated."""
    height, width = planes.shape[1:]
    rows = (torch.arange(height) + down[:, None]).clamp(0, height - 1)
    columns = (torch.arange(width) + right[:, None]).clamp(0, width - 1)
    return _pick(planes[:, None], rows, columns)[:, 0]


def _pick(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Images (N, C, H, W) whose pixel (y, x) is the one at (rows[n, y], columns[n, x])."""
    index = rows[:, :, None] * images.shape[3] + columns[:, None, :]
    return images.flatten(2).gather(2, index.flatten(1)[:, None].expand(-1, images.shape[1], -1)).view(images.shape)


def sharpen(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """x + a (x − its Gaussian blur): an unsharp mask, with halos at edges."""
    (sigma, strength), scale = _SHARPEN.fit(images, severity, parameters)
    return _round_bytes(images + strength * (images - blur(images, sigma, scale)))


def ringing(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """The highest frequencies of the whole image's DCT set to 0, along each axis: ripples beside edges."""
    (share,), scale = _RINGING.fit(images, severity, parameters)
    return _filter_lines(images, lambda length: _low_pass(length, share / max(1.0, scale)))


@lru_cache(maxsize=32)
def _low_pass(length: int, share: float) -> Matrix:
    """(length, length): the projection onto the lowest ⌈share · length⌉ vectors of the orthonormal DCT."""
    basis = fft.dct(np.eye(length), axis=0, norm="ortho")[: math.ceil(share * length)]
    return sparse.csr_array((basis.T @ basis).astype(np.float32))


def median_filter(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """A weighted sum with the median of a square window: noise reduction that smears fine structure."""
    (side, weight), scale = _MEDIAN.fit(images, severity, parameters)
    window = 2 * max(1, round((side - 1) / 2 * scale)) + 1
    medians = ndimage.median_filter(images.numpy(), (1, 1, window, window), mode="nearest")
    return _round_bytes(images + weight * (torch.from_numpy(medians).float() - images))


def posterize(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Values rounded to a few equally spaced levels."""
    (levels,), _ = _POSTERIZE.fit(images, severity, parameters)
    step = 255 / (round(levels) - 1)
    return _round_bytes(((images / step) + 0.5).floor() * step)


def dithering(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Values rounded up or down to a few levels by Bayer's 4 × 4 pattern, which keeps the mean: a print, a GIF."""
    (levels,), _ = _DITHERING.fit(images, severity, parameters)
    step = 255 / (round(levels) - 1)
    height, width = images.shape[2:]
    pattern = _BAYER.repeat(math.ceil(height / 4), math.ceil(width / 4))[:height, :width]
    return _round_bytes((images / step + (pattern + 0.5) / 16).floor() * step)


def block_truncation(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Two levels for each block and channel, with the block's mean and variance: block truncation coding."""
    (side,), scale = _BLOCKS.fit(images, severity, parameters)
    length = round(side * max(1.0, scale))
    count, channels, height, width = images.shape
    rows, columns = math.ceil(height / length), math.ceil(width / length)
    beyond = ((0, 0), (0, 0), (0, rows * length - height), (0, columns * length - width))
    padded = torch.from_numpy(np.pad(images.numpy(), beyond, "edge")).long()
    blocks = padded.view(count, channels, rows, length, columns, length)
    size = length * length
    # sums of integers are exact, so that no order of addition matters
    total, squares = (values.sum((3, 5), keepdim=True).double() for values in (blocks, blocks.square()))
    spread = (squares * size - total.square()).clamp_min(0).sqrt() / size
    above = blocks * size >= total
    high = above.sum((3, 5), keepdim=True).double()
    low = size - high
    # low is 0 only in a flat block, where both levels are the mean
    lower = total / size - spread * (high / low.clamp_min(1)).sqrt()
    upper = total / size + spread * (low / high).sqrt()
    return _round_bytes(torch.where(above, upper, lower)).view(padded.shape)[:, :, :height, :width]


def rescaling(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Made smaller and as large as before again, by a bicubic kernel: a thumbnail that was enlarged."""
    (share,), scale = _RESCALING.fit(images, severity, parameters)
    return _filter_lines(images, lambda length: _rescaled_line(length, share / max(1.0, scale)))


@lru_cache(maxsize=32)
def _rescaled_line(length: int, share: float) -> Matrix:
    """(length, length): a line resized to a share of its pixels and back."""
    lines = torch.eye(length)[None, None]
    for size in (max(1, round(share * length)), length):
        lines = F.interpolate(lines, (size, length), mode="bicubic", antialias=True)
    return sparse.csr_array(lines[0, 0].numpy())


def lost_lines(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Single rows or columns, one at least, that show the line before them: a faulty sensor or connection."""
    (share,), _ = _LOST.fit(images, severity, parameters)
    height, width = images.shape[2:]
    numbers = draws.uniforms(1 + max(height, width))
    of_rows = numbers[:, :1] < 0.5
    rows, columns = (_last_kept(numbers[:, 1 : 1 + length], share) for length in (height, width))
    rows = torch.where(of_rows, rows, torch.arange(height))
    return _pick(images, rows, torch.where(of_rows, torch.arange(width), columns))


def _last_kept(numbers: Tensor, share: float) -> Tensor:
    """(N, L): the line that each shows. Those with a number up to `share` are lost, but never the first."""
    later = numbers[:, 1:]
    lost = later <= later.amin(1, keepdim=True).clamp_min(share) if later.shape[1] else later > 1
    kept = torch.where(lost, 0, torch.arange(1, numbers.shape[1]))
    return torch.cat([kept.new_zeros(len(kept), 1), kept], 1).cummax(1).values


def interlacing(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Every second line moved sideways by whole pixels: the two fields of a moving camera."""
    (move,), scale = _INTERLACING.fit(images, severity, parameters)
    height, width = images.shape[2:]
    steps = max(1, round(move * scale)) * torch.tensor(_signs(draws))
    columns = torch.arange(width) + steps[:, None, None] * (torch.arange(height) % 2)[:, None]
    return images.gather(3, columns.clamp(0, width - 1).unsqueeze(1).expand_as(images))


def _signs(draws: Draws) -> list[int]:
    return [1 if number < 0.5 else -1 for number in draws.uniforms().tolist()]


def _filter_lines(images: Tensor, make: Callable[[int], Matrix]) -> Tensor:
    """Every row, then every column, through the matrix that is made for its length."""
    columns = apply(make(images.shape[3]), images).view(images.shape).transpose(2, 3)
    return _round_bytes(apply(make(images.shape[2]), columns).view(columns.shape).transpose(2, 3))


def _round_bytes(levels: Tensor) -> Tensor:
    return to_bytes(levels + 0.5)
