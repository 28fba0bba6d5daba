"""What a severity means for images of a given size: CIFAR-C's parameters at side 32, ImageNet-C's at side 224.

A length is in pixels of that side. The publisher made the two sets of files by the same functions with other numbers:
noise that spoils a photograph would hide a CIFAR image altogether.
"""

import math
from collections.abc import Sequence

from torch import Tensor

from shiftprism._checks import choice

PARAMETERS = ("auto", "cifar", "imagenet")
"""Which parameters to use: those that fit the size, or those of one data set, its lengths scaled to the size."""
_SIDES = {"cifar": 32, "imagenet": 224}
_Row = tuple[float, ...]


class Severities:
    """The parameters of a corruption at five severities, for both sizes."""

    def __init__(self, cifar: Sequence["_Row | float"], imagenet: Sequence["_Row | float"]) -> None:
        self.cifar, self.imagenet = (
            [row if isinstance(row, tuple) else (row,) for row in rows] for rows in (cifar, imagenet)
        )

    def fit(self, images: Tensor, severity: int, parameters: str = "auto") -> tuple[_Row, float]:
        """(the parameters, the factor on their lengths) for images of this size.

        At a shorter side from 32 to 224 with "auto", each parameter is a power of the side, which goes through both
        sets (or a line in ln(side) where one of them is 0), and the factor is 1. Beyond, the parameters are those of
        the nearer set, and the factor is the side over that set's side.
        """
        side = min(images.shape[-2:])
        first, last = self.cifar[severity - 1], self.imagenet[severity - 1]
        used = choose_parameters(side, parameters)
        if used != "auto":
            return (first if used == "cifar" else last), side / _SIDES[used]
        part = math.log(side / _SIDES["cifar"]) / math.log(_SIDES["imagenet"] / _SIDES["cifar"])
        return tuple(_interpolate(low, high, part) for low, high in zip(first, last, strict=True)), 1.0


def choose_parameters(side: int, parameters: str = "auto") -> str:
    """ "cifar" or "imagenet", whichever set is used for images of this shorter side, or "auto" in between."""
    if choice("parameters", parameters, PARAMETERS) != "auto":
        return parameters
    return "cifar" if side <= _SIDES["cifar"] else "imagenet" if side >= _SIDES["imagenet"] else "auto"


def describe_parameters(side: int, parameters: str = "auto") -> str:
    """Which parameters corruptions use for images of this shorter side, in words.

    >>> describe_parameters(32), describe_parameters(256)
    ("CIFAR-C's parameters", "ImageNet-C's parameters, lengths times 1.14")
    >>> describe_parameters(64)
    "parameters between CIFAR-C's (side 32) and ImageNet-C's (side 224) for side 64"
    """
    used = choose_parameters(side, parameters)
    if used == "auto":
        return f"parameters between CIFAR-C's (side 32) and ImageNet-C's (side 224) for side {side}"
    factor = "" if side == _SIDES[used] else f", lengths times {side / _SIDES[used]:.3g}"
    return f"{'CIFAR' if used == 'cifar' else 'ImageNet'}-C's parameters{factor}"


def _interpolate(low: float, high: float, part: float) -> float:
    if low == high:
        return low
    return low ** (1 - part) * high**part if low > 0 and high > 0 else low + (high - low) * part
