"""The corruptions by name."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftprism._checks import choice
from shiftprism.corruptions._blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from shiftprism.corruptions._corruption import Corruption, check_images
from shiftprism.corruptions._digital import (
    brightness,
    contrast,
    elastic_transform,
    jpeg_compression,
    pixelate,
    saturate,
)
from shiftprism.corruptions._extras import (
    block_truncation,
    chromatic_shift,
    colour_cast,
    dithering,
    gamma,
    interlacing,
    lost_lines,
    median_filter,
    posterize,
    rescaling,
    ringing,
    sharpen,
    tone_curve,
    vignette,
)
from shiftprism.corruptions._noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from shiftprism.corruptions._severities import PARAMETERS
from shiftprism.corruptions._spatter import spatter
from shiftprism.corruptions._weather import fog, frost, snow

# The number is the corruption's random stream. It must never change, or the same seeds would give other images.
_COMMON = (
    Corruption("gaussian_noise", 0, gaussian_noise),
    Corruption("shot_noise", 1, shot_noise),
    Corruption("impulse_noise", 2, impulse_noise),
    Corruption("defocus_blur", 3, defocus_blur),
    Corruption("glass_blur", 4, glass_blur),
    Corruption("motion_blur", 5, motion_blur),
    Corruption("zoom_blur", 6, zoom_blur),
    Corruption("snow", 7, snow),
    Corruption("frost", 8, frost),
    Corruption("fog", 9, fog),
    Corruption("brightness", 10, brightness),
    Corruption("contrast", 11, contrast),
    Corruption("elastic_transform", 12, elastic_transform),
    Corruption("pixelate", 13, pixelate),
    Corruption("jpeg_compression", 14, jpeg_compression),
)
_EXTRA = (
    Corruption("speckle_noise", 15, speckle_noise),
    Corruption("gaussian_blur", 16, gaussian_blur),
    Corruption("spatter", 17, spatter),
    Corruption("saturate", 18, saturate),
)
_OWN = (
    Corruption("gamma", 19, gamma),
    Corruption("tone_curve", 20, tone_curve),
    Corruption("vignette", 21, vignette),
    Corruption("colour_cast", 22, colour_cast),
    Corruption("chromatic_shift", 23, chromatic_shift),
    Corruption("sharpen", 24, sharpen),
    Corruption("ringing", 25, ringing),
    Corruption("median_filter", 26, median_filter),
    Corruption("posterize", 27, posterize),
    Corruption("dithering", 28, dithering),
    Corruption("block_truncation", 29, block_truncation),
    Corruption("interlacing", 30, interlacing),
    Corruption("rescaling", 31, rescaling),
    Corruption("lost_lines", 32, lost_lines),
)
COMMON: tuple[str, ...] = tuple(corruption.name for corruption in _COMMON)
"""The names of the 15 corruptions of CIFAR-C, in their usual order."""
EXTRA: tuple[str, ...] = tuple(corruption.name for corruption in _EXTRA)
"""The names of the four that the publisher keeps for validation."""
OWN_EXTRA: tuple[str, ...] = tuple(corruption.name for corruption in _OWN)
"""The names of ours, which share no operation with the 15 either."""
CORRUPTIONS: dict[str, Corruption] = {corruption.name: corruption for corruption in (*_COMMON, *_EXTRA, *_OWN)}
"""All of them by name."""
FAMILIES: dict[str, tuple[str, ...]] = {
    "noise": ("speckle_noise",),
    "smoothing": ("gaussian_blur", "median_filter"),
    "dirt": ("spatter",),
    "colour": ("saturate", "colour_cast", "chromatic_shift"),
    "tone": ("gamma", "tone_curve", "vignette"),
    "edges": ("sharpen", "ringing"),
    "levels": ("posterize", "dithering"),
    "lines and blocks": ("block_truncation", "interlacing"),
    "resampling": ("rescaling", "lost_lines"),
}
"""All extras by what they change: leave out a whole family to see what a fit to the others does for it."""


def find_corruption(name: str, photographs: "str | Path | None" = None, parameters: str = "auto") -> Corruption:
    """The corruption called `name`, with the `parameters` that `corrupt` explains.

    Frost takes its crops from the folder `photographs`, if that is given.
    """
    corruption = CORRUPTIONS[choice("name", name, CORRUPTIONS)]
    options: dict[str, str] = {}
    if choice("parameters", parameters, PARAMETERS) != "auto":
        options["parameters"] = parameters
    if name == "frost" and photographs is not None:
        options["folder"] = str(photographs)
    return replace(corruption, effect=partial(corruption.effect, **options)) if options else corruption


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seeds: "Tensor | ArrayLike | None" = None,
    *,
    photographs: "str | Path | None" = None,
    parameters: str = "auto",
) -> Tensor:
    """Images (N, C, H, W) under the corruption called `name`. Image n has seed n unless `seeds` are given.

    `parameters` says what a severity means. "auto" fits it to the shorter side: CIFAR-C's parameters up to 32 pixels,
    ImageNet-C's from 224 on, and between the two a power of the side. "cifar" and "imagenet" take one of the sets.
    Lengths are scaled to the side in any case.

    `photographs` is a folder of photographs for the corruption frost. By default it is the folder that the environment
    variable SHIFTPRISM_FROST names; without one, frost uses drawn textures.

    >>> images = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8) * 4
    >>> corrupt(images, "contrast", 5)[0, 0, 0]
    tensor([107, 107, 108, 108, 109, 110, 110, 111], dtype=torch.uint8)
    """
    count = len(check_images(images))
    corruption = find_corruption(name, photographs, parameters)
    return corruption(images, severity, torch.arange(count) if seeds is None else seeds)


def describe_corruptions() -> list[tuple[str, ...]]:
    """A table of all corruptions, the titles first: name, kind, family of an extra, what it does."""
    families = {name: family for family, names in FAMILIES.items() for name in names}
    rows: list[tuple[str, ...]] = [("name", "kind", "family", "what it does")]
    for name, corruption in CORRUPTIONS.items():
        kind = "test" if name in COMMON else "extra"
        rows.append((name, kind, families.get(name, ""), (corruption.effect.__doc__ or "").split("\n")[0]))
    return rows
