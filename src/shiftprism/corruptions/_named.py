"""The corruptions by name."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import choice
from shiftprism.corruptions._door import Corruption, checked_images
from shiftprism.corruptions.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from shiftprism.corruptions.digital import (
    brightness,
    contrast,
    elastic_transform,
    jpeg_compression,
    pixelate,
    saturate,
)
from shiftprism.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from shiftprism.corruptions.spatter import spatter
from shiftprism.corruptions.weather import fog, frost, snow

COMMON = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The 15 of CIFAR-C, in their usual order."""

EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four that the publisher keeps for validation."""


def named(name: str, photographs: "str | Path | None" = None) -> Corruption:
    """The corruption called `name`; frost takes its pieces from the folder `photographs`, if that is given."""
    corruption = CORRUPTIONS[choice("name", name, CORRUPTIONS)]
    if name != "frost" or photographs is None:
        return corruption
    return replace(corruption, effect=partial(frost, folder=str(photographs)))


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seeds: "Tensor | ArrayLike | None" = None,
    *,
    photographs: "str | Path | None" = None,
) -> Tensor:
    """Images (N, C, H, W) corrupted in the way called `name`, image n with seed n unless `seeds` are given.

    `photographs` is a folder of photographs for the corruption frost. Without it the folder that the environment
    variable SHIFTPRISM_FROST names is used, and without that drawn textures.

    >>> images = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8) * 4
    >>> corrupt(images, "contrast", 5)[0, 0, 0]
    tensor([107, 107, 108, 108, 109, 110, 110, 111], dtype=torch.uint8)
    """
    count = len(checked_images(images))
    return named(name, photographs)(images, severity, torch.arange(count) if seeds is None else seeds)


# The number of its random stream stands beside each: a corruption keeps it, whatever is added or moved.
CORRUPTIONS: dict[str, Corruption] = {
    "gaussian_noise": Corruption("gaussian_noise", 0, gaussian_noise),
    "shot_noise": Corruption("shot_noise", 1, shot_noise),
    "impulse_noise": Corruption("impulse_noise", 2, impulse_noise),
    "defocus_blur": Corruption("defocus_blur", 3, defocus_blur),
    "glass_blur": Corruption("glass_blur", 4, glass_blur),
    "motion_blur": Corruption("motion_blur", 5, motion_blur),
    "zoom_blur": Corruption("zoom_blur", 6, zoom_blur),
    "snow": Corruption("snow", 7, snow),
    "frost": Corruption("frost", 8, frost),
    "fog": Corruption("fog", 9, fog),
    "brightness": Corruption("brightness", 10, brightness),
    "contrast": Corruption("contrast", 11, contrast),
    "elastic_transform": Corruption("elastic_transform", 12, elastic_transform),
    "pixelate": Corruption("pixelate", 13, pixelate),
    "jpeg_compression": Corruption("jpeg_compression", 14, jpeg_compression),
    "speckle_noise": Corruption("speckle_noise", 15, speckle_noise),
    "gaussian_blur": Corruption("gaussian_blur", 16, gaussian_blur),
    "spatter": Corruption("spatter", 17, spatter),
    "saturate": Corruption("saturate", 18, saturate),
}
