"""What the processing of a camera or a file does: brightness, contrast, saturation, warping, coarse pixels, JPEG."""

import io
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse
from torch import Tensor

from shiftprism.corruptions._filters import Matrix, apply, blur, noise_gain, round_rows, to_bytes
from shiftprism.corruptions._random import Draws
from shiftprism.corruptions._sampling import sample
from shiftprism.corruptions._severities import Severities

_BRIGHTNESS = Severities(cifar=(0.05, 0.1, 0.15, 0.2, 0.3), imagenet=(0.1, 0.2, 0.3, 0.4, 0.5))  # added to HSV value
_CONTRAST = Severities(cifar=(0.75, 0.5, 0.4, 0.3, 0.15), imagenet=(0.4, 0.3, 0.2, 0.1, 0.05))  # factor
# Strength and σ of the random field, and how far three points of the affine map move: written as fractions of 32, and
# of the 244 that the publisher took in place of 224.
_CIFAR_ELASTIC = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
_IMAGENET_ELASTIC = ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
_ELASTIC = Severities(
    cifar=[tuple(32 * fraction for fraction in row) for row in _CIFAR_ELASTIC],
    imagenet=[tuple(244 * fraction for fraction in row) for row in _IMAGENET_ELASTIC],
)
_PIXELATE = Severities(cifar=(0.95, 0.9, 0.85, 0.75, 0.65), imagenet=(0.6, 0.5, 0.4, 0.3, 0.25))  # of the side
_JPEG = Severities(cifar=(80, 65, 58, 50, 40), imagenet=(25, 18, 15, 10, 7))  # quality
# factor and offset of HSV saturation
_SATURATE = Severities(
    cifar=((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
    imagenet=((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
)


def brightness(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """HSV value raised, hue and saturation kept: the largest channel V becomes min(V + c, 1); the others scale too."""
    (offset,), _ = _BRIGHTNESS.fit(images, severity, parameters)
    value = images.amax(1, keepdim=True).float()
    raised = (value + 255 * offset).clamp(max=255)
    return to_bytes(torch.where(value > 0, images * (raised / value.clamp(min=1)), raised))


def contrast(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """(x − m) c + m about the mean m of each channel."""
    (factor,), _ = _CONTRAST.fit(images, severity, parameters)
    means = images.sum((2, 3), keepdim=True).float() / (images.shape[2] * images.shape[3])
    return to_bytes((images - means) * factor + means)


def saturate(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """HSV saturation S becomes a S + b, clipped to [0, 1]. A grey pixel has hue 0, so b > 0 makes it reddish.

    A grey image has no saturation and stays as it is.
    """
    if images.shape[1] == 1:
        return images.clone()
    (factor, shift), _ = _SATURATE.fit(images, severity, parameters)
    value = images.amax(1, keepdim=True).float()
    spread = value - images.amin(1, keepdim=True)
    saturation = (spread / value.clamp(min=1) * factor + shift).clamp(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0]).reshape(1, 3, 1, 1)
    # How far each channel lies below the largest: 0 for the largest itself, 1 for the smallest. This is all of the hue.
    below = torch.where(spread > 0, (value - images) / spread.clamp(min=1), red)
    return to_bytes(value * (1 - saturation * below))


def elastic_transform(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """A random affine map close to the identity, then each pixel moved by a smooth random field."""
    (strength, sigma, jitter), scale = _ELASTIC.fit(images, severity, parameters)
    height, width = images.shape[2:]
    moves = (draws.uniforms(3, 2) * 2 - 1) * (jitter * scale)
    warped = sample(images.float(), *_affine_map(height, width, moves), "mirror")
    if strength == 0:
        return to_bytes(warped)
    noise = draws.uniforms(2, height, width) * 2 - 1
    reach = strength * scale * noise_gain(sigma, scale, truncate=3)
    field = blur(noise, sigma, scale, truncate=3, border="symmetric") * reach
    rows, columns = torch.arange(height)[:, None] + field[:, 0], torch.arange(width) + field[:, 1]
    return to_bytes(sample(warped, rows, columns, "symmetric"))


def _affine_map(height: int, width: int, moves: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns (N, H, W) that pixels come from when three points have moved by `moves` (N, 3, 2).

    The points are three corners of a square about the centre, a third of the shorter side away along each axis.
    """
    third = min(height, width) // 3
    corners = torch.tensor([[1, 1], [-1, 1], [-1, -1]]) * third + torch.tensor([height // 2, width // 2])
    first, second, last = (corners + moves.double()).unbind(1)
    # The inverse map takes first − second to (2 thirds, 0) and second − last to (0, 2 thirds). A 2 × 2 inverse by hand
    # is elementwise over the batch, so it rounds alike in every batch; a batched solver may not.
    (a, c), (b, d) = (first - second).T, (second - last).T
    back = torch.stack([torch.stack([d, -c]), torch.stack([-b, a])]) * (2 * third / (a * d - b * c))
    start = corners[1, :, None] - (back * second.T[:, None]).sum(0)  # (2, N)
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    places = [
        start[axis, :, None, None] + back[0, axis, :, None, None] * rows + back[1, axis, :, None, None] * columns
        for axis in (0, 1)
    ]
    return places[0], places[1]


def pixelate(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Shrunk by averaging, then enlarged by repeating, with rounding to integers after each axis, as Pillow does.

    The small image has c times the side. Where lengths are scaled up it is as wide as at the parameters' own side, so
    coarse pixels grow.
    """
    (factor,), scale = _PIXELATE.fit(images, severity, parameters)
    factor /= max(1.0, scale)
    height, width = images.shape[2:]
    across, down = _pixelate_matrices(height, width, factor)
    lines = (apply(across, images) + 0.5).byte()
    return (apply(down, lines) + 0.5).byte().view(images.shape)


@lru_cache(maxsize=32)
def _pixelate_matrices(height: int, width: int, factor: float) -> tuple[Matrix, Matrix]:
    """Two matrices: the first averages columns; the second averages rows and enlarges both axes."""
    small = [max(1, int(length * factor)) for length in (height, width)]
    across = sparse.kron(sparse.eye_array(height), _box_matrix(width, small[1]))
    down = sparse.kron(_box_matrix(small[0], height) @ _box_matrix(height, small[0]), _box_matrix(small[1], width))
    return round_rows(across.tocsr()), round_rows(down.tocsr())


def _box_matrix(old: int, new: int) -> Matrix:
    """(new, old): each new pixel is the mean of the old pixels whose centres it covers, or the one it lies in."""
    ratio = old / new
    reach = 0.5 * max(1.0, ratio)
    distance = np.arange(old) + 0.5 - (np.arange(new)[:, None] + 0.5) * ratio
    covered = (distance > -reach) & (distance <= reach)
    return sparse.csr_array(covered / covered.sum(1, keepdims=True))


def jpeg_compression(images: Tensor, severity: int, draws: Draws, parameters: str = "auto") -> Tensor:
    """Each image written as JPEG and read again."""
    (quality,), _ = _JPEG.fit(images, severity, parameters)
    pixels = images.permute(0, 2, 3, 1).squeeze(3).contiguous().numpy()
    compressed = np.stack([_compress(image, round(quality)) for image in pixels])
    return torch.from_numpy(compressed).reshape(len(images), *images.shape[2:], -1).permute(0, 3, 1, 2)


def _compress(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    with Image.open(file, formats=("JPEG",)) as opened:
        return np.asarray(opened)
