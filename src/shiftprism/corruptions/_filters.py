"""Kernels, and the sparse matrices that apply them to whole images.

Weights are rounded to multiples of 2⁻¹⁶ that sum to exactly 1. Pixels are 8-bit integers, so a weighted sum of them
fits into the 24-bit mantissa of float32 and is exact in any order of addition. Hence the bytes do not depend on the
batch, the threads or the machine, and a flat area stays flat.
"""

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from shiftprism._checks import Floats

_GRAIN = 2.0**16
Matrix: TypeAlias = "sparse.csr_array[Any, tuple[int, int]]"


def to_bytes(levels: Tensor) -> Tensor:
    """Grey levels clipped to 0 … 255 and truncated to integers, as in the publisher's files.

    The 0.001 keeps an integer that float rounding left just below itself from losing a level.
    """
    return (levels + 1e-3).clamp_(0, 255).to(torch.uint8)


def round_kernel(kernel: Floats) -> Floats:
    """The non-negative `kernel` normalised to multiples of 2⁻¹⁶ that sum to exactly 1."""
    rounded: Floats = np.round(kernel / kernel.sum() * _GRAIN)
    # The largest weight takes up what rounding lost or added: there it is the smallest relative change.
    rounded.flat[rounded.argmax()] += _GRAIN - rounded.sum()
    return rounded / _GRAIN


def round_rows(matrix: Matrix) -> Matrix:
    """A sparse matrix with each row as `round_kernel` makes it, in float32."""
    matrix.sum_duplicates()
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        matrix.data[start:end] = round_kernel(matrix.data[start:end])
    return matrix.astype(np.float32)


def gaussian_kernel(sigma: float, scale: float = 1.0, truncate: float = 4.0) -> Floats:
    """A sampled Gaussian of σ·scale pixels, out to `truncate` times that.

    Below scale 1 the Gaussian can be narrower than a pixel, and samples of it would be a single 1. There the kernel of
    scale 1 is resized instead.
    """
    width = sigma * max(scale, 1.0)
    reach = int(truncate * width + 0.5)
    distance = np.arange(-reach, reach + 1)
    kernel: Floats = np.exp(-0.5 * (distance / max(width, 1e-9)) ** 2)
    return round_kernel(resize_kernel(kernel, min(scale, 1.0)))


def resize_kernel(kernel: Floats, scale: float) -> Floats:
    """A centred kernel (odd along each axis) drawn `scale` times as large.

    Above 1 each weight is spread over the pixels it covers; below 1 it is shared by its two nearest pixels.
    """
    width = max(scale, 1.0)
    for axis in range(kernel.ndim):
        reach = kernel.shape[axis] // 2
        new = math.ceil((reach + 0.5) * scale - 0.5) if scale > 1 else math.ceil(reach * scale)
        distance = np.abs(np.arange(-new, new + 1)[:, None] - np.arange(-reach, reach + 1) * scale)
        # The overlap of a pixel, one wide, with a weight that is `width` wide. At width 1 this is linear sharing.
        share = np.clip((width + 1) / 2 - distance, 0, 1) / width
        kernel = np.moveaxis(np.tensordot(share, kernel, (1, axis)), 0, axis)
    return kernel


def apply(matrix: Matrix, images: Tensor) -> Tensor:
    """The matrix, over H·W or W pixels, applied to each channel or row of images (N, C, H, W): (N, C, …), float32."""
    columns = images.reshape(-1, matrix.shape[1]).T.float().contiguous().numpy()
    return torch.from_numpy(matrix @ columns).T.reshape(*images.shape[:2], -1)


def line_matrix(length: int, kernel: Floats, border: str) -> Matrix:
    """The (length, length) matrix of a correlation with `kernel`, `border` as in numpy.pad: "edge" or "symmetric"."""
    padded = np.pad(np.arange(length), len(kernel) // 2, "edge" if border == "edge" else "symmetric")
    places = np.lib.stride_tricks.sliding_window_view(padded, len(kernel))
    rows = np.repeat(np.arange(length), len(kernel))
    weights = np.tile(kernel, length)
    return sparse.csr_array((weights, (rows, places.ravel())), (length, length))


@lru_cache(maxsize=32)
def _blur_matrices(
    size: tuple[int, int], sigma: float, scale: float, truncate: float, border: str
) -> tuple[Matrix, Matrix]:
    """Two matrices: over the pixels of a row, and over those of a column."""
    kernel = gaussian_kernel(sigma, scale, truncate)
    down, across = (line_matrix(length, kernel, border).astype(np.float32) for length in size)
    return across, down


def blur(images: Tensor, sigma: float, scale: float, truncate: float = 4.0, border: str = "edge") -> Tensor:
    """Images (N, C, H, W) after a Gaussian blur of σ·scale pixels, in float32."""
    height, width = images.shape[2:]
    across, down = _blur_matrices((height, width), sigma, scale, truncate, border)
    if across.nnz == width:  # the kernel is a single pixel
        return images.float()
    columns = apply(across, images).view(images.shape).transpose(2, 3)
    return apply(down, columns).view(columns.shape).transpose(2, 3)


def noise_gain(sigma: float, scale: float, truncate: float = 4.0) -> float:
    """The factor that gives white noise, blurred by σ·scale, the standard deviation it has at scale 1.

    A blur with weights w in both directions multiplies the standard deviation of white noise by Σ w².
    """
    scaled, plain = (gaussian_kernel(sigma, size, truncate) for size in (scale, 1.0))
    return float((plain**2).sum() / (scaled**2).sum())


def zoom_matrix(height: int, width: int, factor: float) -> Matrix:
    """The (H·W, H·W) matrix that enlarges the middle of an image `factor` ≥ 1 times, by linear interpolation."""
    return sparse.kron(_line_zoom(height, factor), _line_zoom(width, factor)).tocsr()


def _line_zoom(length: int, factor: float) -> Matrix:
    """(length, length): crop the middle ⌈length / factor⌉ of a line, enlarge it with its ends kept, crop to `length`.

    The enlargement is that of scipy.ndimage.zoom with order 1.
    """
    middle = math.ceil(length / factor)
    enlarged = round(middle * factor)
    kept = (enlarged - length) // 2 + np.arange(length)
    source = kept * ((middle - 1) / max(1, enlarged - 1))
    left = np.minimum(source.astype(int), max(0, middle - 2))
    part = source - left
    places = (length - middle) // 2 + np.concatenate([left, left + (middle > 1)])
    weights = np.concatenate([1 - part, part])
    return sparse.csr_array((weights, (np.tile(np.arange(length), 2), places)), (length, length))
