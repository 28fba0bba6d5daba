"""The type of a corruption. Calling one checks the arguments and works in chunks, with one seed for each image."""

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism._devices import compute_alone
from shiftprism.corruptions._random import Draws

# How many values are processed at a time. Torch starts threads for more than about 2¹⁵ values, and on busy cores its
# waiting threads cost more than they bring (2¹⁸ at a time took between 2 and 20 times as long). Where torch has only
# one thread, a larger chunk saves a third of the time. So from two large chunks on, threads of ours have one each, in
# which torch has no further threads: NumPy's generators, Pillow and torch all release the interpreter's lock.
_CHUNK = 24576
_CHUNK_OF_ONE_THREAD = 131072
_ALONE = frozenset(("brightness", "contrast", "fog", "frost", "jpeg_compression"))
"""Those that threads make slower: so little is computed that they wait for the interpreter's lock."""
_SMALLEST_SIDE = 8


@dataclass(frozen=True)
class Corruption:
    """One way to corrupt images, at five severities.

    `corruption(images, severity, seeds)` takes uint8 images (N, C, H, W), grey or RGB, of 8 × 8 pixels or more, and one
    integer seed for each image. It returns new uint8 images of the same shape. The result for an image depends only on
    the image, the severity and its seed, not on the rest of the batch. The work is done on the CPU.

    >>> from shiftprism.corruptions import CORRUPTIONS
    >>> images = torch.full((2, 3, 32, 32), 128, dtype=torch.uint8)
    >>> noisy = CORRUPTIONS["gaussian_noise"](images, 3, torch.tensor([7, 8]))
    >>> noisy.shape, noisy.dtype, round(noisy.float().std().item())
    (torch.Size([2, 3, 32, 32]), torch.uint8, 20)
    """

    name: str
    """The name that CIFAR-C's files use."""
    stream: int
    """Which of a seed's random streams it draws from. All severities share it, so they differ only in strength."""
    effect: Callable[[Tensor, int, Draws], Tensor]
    """What it does to a chunk of images."""

    def __call__(self, images: Tensor, severity: int, seeds: "Tensor | ArrayLike") -> Tensor:
        """The corrupted images: a new tensor on the device of `images`."""
        severity = check_severity(severity)
        numbers = check_seeds(seeds, len(check_images(images)))
        result = torch.empty(images.shape, dtype=torch.uint8)
        threads = min(torch.get_num_threads(), max(1, images.numel() // _CHUNK_OF_ONE_THREAD), len(images))
        threads = min(threads, 1) if self.name in _ALONE else threads
        chunk = _CHUNK if threads == 1 < torch.get_num_threads() else _CHUNK_OF_ONE_THREAD
        step = max(1, chunk // max(1, images[:1].numel()))

        def corrupt_chunk(start: int) -> None:
            part = images[start : start + step].cpu().contiguous()
            draws = Draws(numbers[start : start + step], self.stream)
            result[start : start + step] = self.effect(part, severity, draws)

        starts = range(0, len(images), step)
        if threads <= 1:
            for start in starts:
                corrupt_chunk(start)
        else:
            with ThreadPoolExecutor(threads, initializer=compute_alone) as pool:
                list(pool.map(corrupt_chunk, starts))  # a list, so that an error is raised here
        return result.to(images.device)


def check_images(images: Tensor) -> Tensor:
    """`images`, if they are uint8 of shape (N, 1 or 3, H, W) and 8 × 8 pixels or more; an error otherwise."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        got = str(images.dtype) if isinstance(images, Tensor) else type(images).__name__
        advice = "convert values in [0, 1] with (images * 255).round().to(torch.uint8)"
        raise wrong("images", "a tensor of torch.uint8", got, advice)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        got = f"shape {tuple(images.shape)}"
        raise wrong("images", "of shape (N, C, H, W), grey or RGB,", got, "put channels before height and width")
    if min(images.shape[2:]) < _SMALLEST_SIDE:
        got = f"{images.shape[2]} × {images.shape[3]}"
        raise wrong("images", f"of {_SMALLEST_SIDE} × {_SMALLEST_SIDE} pixels or more", got, "enlarge them first")
    return images


def check_severity(severity: int) -> int:
    """`severity`, if it is an integer from 1 to 5; an error otherwise."""
    try:
        value = operator.index(severity)
    except TypeError:
        value = 0
    if not 1 <= value <= 5:
        raise wrong("severity", "a whole number from 1 to 5", repr(severity), "choose one of CIFAR-C's five severities")
    return value


def check_seeds(seeds: "Tensor | ArrayLike", count: int) -> NDArray[np.int64]:
    """`seeds` as int64, if they are `count` integers; an error otherwise."""
    array = seeds.detach().cpu().numpy() if isinstance(seeds, Tensor) else np.asarray(seeds)
    if array.shape != (count,):
        raise wrong("seeds", f"of shape ({count},)", f"shape {array.shape}", "pass one seed for each image")
    if array.dtype.kind not in "iu" and count:
        raise wrong("seeds", "whole numbers", f"dtype {array.dtype}", "use torch.arange(N) or other integers")
    return np.ascontiguousarray(array, np.int64)
