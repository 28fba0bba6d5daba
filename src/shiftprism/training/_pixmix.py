"""PixMix: training images mixed with structurally rich pictures and with distorted copies of themselves.

Reference: Hendrycks et al., "PixMix: Dreamlike Pictures Comprehensively Improve Safety Measures", 2022. Its operations
autocontrast and equalise are left out, since `contrast` is one of the corruptions that models are tested on.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

ROUNDS = 4
"""The most rounds of mixing; each number from 0 to this is equally likely."""
_BETA = 3.0  # the larger, the more of the image itself is kept
# The largest distortions. A shift is a share of the side: three pixels of 32.
_ANGLE, _SHEAR, _SHIFT = math.radians(9), 0.18, 3 / 32
_SOLARISE = 0.7  # the least value from which pixels are inverted
_OPERATIONS = 5  # rotate, shear, shift, solarise, posterise

Draw = Callable[..., Tensor]


def pixmix(images: Tensor, pictures: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """uint8 images (N, C, H, W) of which a `share`, drawn for each image, is mixed; the others stay as they are.

    An image to be mixed starts as itself or, half of the time, as a distorted copy. In each of 0 to 4 rounds a picture
    or another distorted copy is added or multiplied, with weights in which β = 3 favours the image. So a tenth of the
    images that are drawn comes out unchanged. A distortion is a rotation, shear, shift, solarisation or posterisation.
    `pictures` (P, C, H' ≥ H, W' ≥ W) are uint8 and cropped at random: see `make_mixing_pictures`.

    >>> images = torch.full((4, 1, 8, 8), 200, dtype=torch.uint8)
    >>> pixmix(images, torch.zeros(2, 1, 12, 12, dtype=torch.uint8), 1.0, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 1, 8, 8])
    """

    def draw(*shape: int) -> Tensor:
        """Numbers uniform in [0, 1), from the same generator on every device."""
        return torch.rand(*shape, generator=generator).to(images.device)

    chosen = _places(draw(len(images)) < share)
    rounds = (draw(len(chosen)) * (ROUNDS + 1)).long()
    original = images.index_select(0, chosen).float() / 255
    mixed = _replace_half(original, original, draw)
    for done in range(ROUNDS):
        active = _places(rounds > done)
        cropped = _crop(pictures, len(active), images.shape, draw)
        others = _replace_half(cropped, original.index_select(0, active), draw)
        mixed.index_copy_(0, active, _combine(mixed.index_select(0, active), others, draw))
    return images.index_copy(0, chosen, (mixed * 255).round().to(torch.uint8))


def _places(mask: Tensor) -> Tensor:
    """Where a mask (N,) is true. Rows are taken by number below: a mask as an index takes several times as long."""
    return mask.nonzero().squeeze(1)


def _replace_half(images: Tensor, source: Tensor, draw: Draw) -> Tensor:
    """The images, half of them, drawn for each, replaced by the distorted rows of `source`."""
    half = _places(draw(len(images)) < 0.5)
    return images.index_copy(0, half, _distort(source.index_select(0, half), draw))


def _crop(pictures: Tensor, count: int, shape: torch.Size, draw: Draw) -> Tensor:
    """`count` random windows of random pictures, in [0, 1]."""
    windows = pictures.unfold(2, shape[2], 1).unfold(3, shape[3], 1)  # (P, C, places, places, H, W), a view
    which, top, left = draw(3, count)
    index = [(which * windows.shape[0]).long(), (top * windows.shape[2]).long(), (left * windows.shape[3]).long()]
    return windows[index[0], :, index[1], index[2]].float() / 255


def _combine(first: Tensor, second: Tensor, draw: Draw) -> Tensor:
    """Images in [0, 1] added or multiplied, each with probability ½.

    Addition is a x + b y of values in [−1, 1]; multiplication is x^a y^b of values in [0, 2]. With B₁ ~ Beta(3, 1) and
    B₂, B₃ ~ Beta(1, 3) the weights (a, b) are (B₁, B₂) or (1 + B₃, −B₂), each with probability ½.
    """
    near_one, low, other = draw(3, len(first)) ** (1 / _BETA)  # Beta(β, 1); 1 − Beta(β, 1) is Beta(1, β)
    negative, adds = draw(2, len(first)) < 0.5
    a = torch.where(negative, 2 - other, near_one)[:, None, None, None]
    b = torch.where(negative, low - 1, 1 - low)[:, None, None, None]
    plus, times = _places(adds), _places(~adds)
    x, y, p, q = (values.index_select(0, plus) for values in (first, second, a, b))
    total = x * p + y * q + (1 - p - q) / 2
    x, y, p, q = (values.index_select(0, times) for values in (first, second, a, b))
    # at least one grey level, since a negative power of 0 is infinite
    product = ((2 * x).clamp_min_(2 / 255).log_() * p + (2 * y).clamp_min_(2 / 255).log_() * q).exp_() / 2
    return torch.empty_like(first).index_copy_(0, plus, total).index_copy_(0, times, product).clamp_(0, 1)


def _distort(images: Tensor, draw: Draw) -> Tensor:
    """Each image in [0, 1] after one operation, drawn with its strength: rotate, shear, shift, solarise, posterise."""
    kind = (draw(len(images)) * _OPERATIONS).long()
    strength, across = draw(len(images)), draw(len(images)) < 0.5
    moved, solarised, posterised = _places(kind <= 2), _places(kind == 3), _places(kind == 4)
    grid = _affine_grid(kind[moved], 2 * strength[moved] - 1, across[moved], images)
    warped = F.grid_sample(images.index_select(0, moved), grid, align_corners=False)
    bright = images.index_select(0, solarised)
    inverted = torch.where(bright < 1 - (1 - _SOLARISE) * strength[solarised, None, None, None], bright, 1 - bright)
    levels = torch.where(across[posterised], 8.0, 16.0)[:, None, None, None]  # three or four bits
    coarse = (images.index_select(0, posterised) * (255 / 256) * levels).floor_() / levels * (256 / 255)
    result = torch.empty_like(images).index_copy_(0, moved, warped)
    return result.index_copy_(0, solarised, inverted).index_copy_(0, posterised, coarse)


def _affine_grid(kind: Tensor, strength: Tensor, across: Tensor, images: Tensor) -> Tensor:
    """(N, H, W, 2): where pixels come from, x and y from −1 to 1, in a rotation (kind 0), shear (1) or shift (2).

    `strength` is from −1 to 1; a shear or shift goes `across` the image or down. By hand, since torch's affine_grid
    refuses a batch of none.
    """
    height, width = images.shape[2:]
    x, y = ((torch.arange(side, device=images.device) + 0.5) * (2 / side) - 1 for side in (width, height))
    y = y[:, None]
    ratio = height / width  # one unit down is as long as so many units across
    kind, strength, across = (values[:, None, None] for values in (kind, strength, across))
    angle, shear, shift = (
        size * strength * (kind == number) for number, size in enumerate((_ANGLE, _SHEAR, 2 * _SHIFT))
    )
    right = angle.cos() * x + (shear * across - angle.sin()) * ratio * y + shift * across
    down = (angle.sin() + shear * ~across) / ratio * x + angle.cos() * y + shift * ~across
    return torch.stack([right, down], 3)
