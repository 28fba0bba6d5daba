"""Reading pixels from other places: along a line (motion blur), under a small kernel, or bilinearly (warps).

Every sum is built by elementwise operations in one fixed order, so an image's bytes do not depend on its batch. This
room avoids operations for which torch starts threads even on few numbers: pad, floor, max_pool2d, tensor[index].
"""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shiftprism._checks import Floats
from shiftprism.corruptions._filters import round_kernel


def correlate(images: Tensor, kernel: Floats, border: Literal["reflect", "edge"] = "reflect") -> Tensor:
    """Float images (N, C, H, W) correlated with a kernel of odd sides, `border` as in numpy.pad."""
    down, right = (length // 2 for length in kernel.shape)
    padded = torch.from_numpy(np.pad(images.numpy(), ((0, 0), (0, 0), (down, down), (right, right)), border))
    height, width = images.shape[2:]
    line = padded.shape[3]
    flat = padded.flatten(2)
    # In the flattened padded image each weight is one offset, and all rows together are one run of pixels. What wraps
    # around from one row to the next falls into the padding, which the last line cuts off.
    run = (height - 1) * line + width
    total = images.new_zeros(*images.shape[:2], height * line)
    for row, column in np.argwhere(kernel).tolist():
        start = row * line + column
        total[:, :, :run] += flat[:, :, start : start + run] * float(kernel[row, column])
    return total.reshape(*images.shape[:3], line)[..., :width]


def motion(images: Tensor, radius: float, sigma: float, angles: Tensor, scale: float) -> Tensor:
    """Images (N, C, H, W) smeared to one side along (N,) angles in degrees, in float32.

    Weight i of the half Gaussian exp(−i²/2σ²), i = 0 … 2·radius, reads the pixel nearest to i steps along the angle,
    with the edge repeated: ImageMagick's motion blur. Below scale 1 the steps are shorter than a pixel and are read
    bilinearly.
    """
    stretch = max(scale, 1.0)
    kernel = round_kernel(np.exp(-0.5 * (np.arange(2 * math.ceil(radius * stretch) + 1) / (sigma * stretch)) ** 2))
    taps = torch.from_numpy(kernel.nonzero()[0]).reshape(-1, 1, 1)
    radians = angles.double() * (math.pi / 180)
    offsets = taps * torch.stack([radians.sin(), radians.cos()]) * min(scale, 1.0)  # (taps, 2, N)
    weights = torch.from_numpy(kernel[kernel > 0]).reshape(-1, 1)
    if scale < 1:
        offsets, weights = _corners(offsets, weights)
    # ImageMagick rounds a half down: ceil(x − ½).
    return _sum_shifted(images.float(), (offsets - 0.5).ceil().long(), weights.float())


def _corners(offsets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Integer offsets (4·taps, 2, N) and weights (4·taps, N) that read fractional offsets bilinearly."""
    low = offsets.floor()
    down, right = (offsets - low).unbind(1)
    corners = [(low + torch.tensor([[v], [u]])) for v in (0, 1) for u in (0, 1)]
    shares = [(down if v else 1 - down) * (right if u else 1 - right) for v in (0, 1) for u in (0, 1)]
    return torch.cat(corners), torch.cat([weights * share for share in shares])


def _sum_shifted(images: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Σ weight · image read at an offset, with the edge repeated: offsets (taps, 2, N), weights (taps, N or 1)."""
    count, channels, height, width = images.shape
    rows = (torch.arange(height) + offsets[:, 0, :, None]).clamp_(0, height - 1).mul_(width).unsqueeze(3)
    columns = (torch.arange(width) + offsets[:, 1, :, None]).clamp_(0, width - 1).unsqueeze(2)
    flat = images.flatten(2)
    total = torch.zeros_like(flat)
    for row, column, weight in zip(rows, columns, weights[:, :, None, None], strict=True):
        index = (row + column).view(count, 1, -1).expand(-1, channels, -1)
        total += flat.gather(2, index).mul_(weight)
    return total.view(images.shape)


def sample(images: Tensor, rows: Tensor, columns: Tensor, border: str) -> Tensor:
    """Float images (N, C, H, W) read bilinearly at rows and columns (N, H, W), at most one image beyond the border.

    Beyond the border the image is mirrored: about the border pixel ("mirror") or about its outer edge ("symmetric").
    """
    height, width = images.shape[2:]
    row, down = _split(_mirror(rows, height, border), height)
    column, right = _split(_mirror(columns, width, border), width)
    flat = images.flatten(2)
    start = (row * width + column).flatten(1).unsqueeze(1)
    down, right = down.flatten(1).unsqueeze(1), right.flatten(1).unsqueeze(1)

    def interpolate_row(first: int) -> Tensor:
        left, other = (flat.gather(2, (start + first + step).expand_as(flat)) for step in (0, 1))
        return left.add_(other.sub_(left).mul_(right))

    top, bottom = interpolate_row(0), interpolate_row(width)
    return top.add_(bottom.sub_(top).mul_(down)).view(images.shape)


def _mirror(places: Tensor, length: int, border: str) -> Tensor:
    """Places on a line of pixels, those beyond an end reflected back into it."""
    rim = 0.0 if border == "mirror" else 0.5
    last = length - 1 + rim
    folded = last - (last - ((places + rim).abs() - rim)).abs()
    return folded.clamp(0, length - 1)


def _split(places: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The pixel before each place, never the last one, and the distance from it to the place."""
    low = places.long().clamp_(max=length - 2)
    return low, (places - low).float()
