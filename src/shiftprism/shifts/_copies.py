"""Shifted copies of a user's own images, to fit scores and calibrators to."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shiftprism._checks import wrong
from shiftprism.corruptions import COMMON, EXTRA, OWN_EXTRA, check_images, find_corruption
from shiftprism.shifts._shift import check_corruptions


class ShiftedCopy(NamedTuple):
    """Images under one extra corruption at one severity."""

    name: str
    severity: int
    images: Tensor


def make_shifted_copies(
    images: Tensor,
    names: Sequence[str] = (*EXTRA, *OWN_EXTRA),
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    seeds: Tensor | None = None,
    parameters: str = "auto",
) -> Iterator[ShiftedCopy]:
    """The images (N, C, H, W), uint8, under each of the extra corruptions at each severity, made one by one.

    The extras share no operation with the 15 corruptions of CIFAR-C, which are refused: they are there to test what was
    fitted to these copies. A copy that equals the images is left out, such as colour changes of grey images. Image n
    has seed n unless `seeds` are given. `parameters` are those of `corruptions.corrupt`.

    >>> from shiftprism.datasets import load
    >>> copies = make_shifted_copies(load("digits", "test").images, ["gamma", "saturate", "median_filter"], [1, 5])
    >>> [(copy.name, copy.severity) for copy in copies]
    [('gamma', 1), ('gamma', 5), ('median_filter', 1), ('median_filter', 5)]
    """
    check_images(images)
    check_corruptions(names, severities)
    if tested := sorted(set(names) & set(COMMON)):
        advice = f"take some of {', '.join((*EXTRA, *OWN_EXTRA))}; the 15 of CIFAR-C test what is fitted to the copies"
        raise wrong("names", "extra corruptions", ", ".join(tested), advice)
    corruptions = [find_corruption(name, parameters=parameters) for name in names]
    numbers = torch.arange(len(images)) if seeds is None else seeds

    def make() -> Iterator[ShiftedCopy]:
        for corruption in corruptions:
            for severity in severities:
                copied = corruption(images, severity, numbers)
                if not torch.equal(copied, images):
                    yield ShiftedCopy(corruption.name, severity, copied)

    return make()
