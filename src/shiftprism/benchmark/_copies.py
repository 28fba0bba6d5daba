"""Shifted copies of held-out images, and the parts of the held-out data, for what is fitted to covariate shift."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from shiftprism.benchmark._photos import Photographs
from shiftprism.benchmark._suites import take_evenly
from shiftprism.corruptions import EXTRA, OWN_EXTRA
from shiftprism.datasets import Dataset
from shiftprism.outputs import Outputs
from shiftprism.recommend import Labelled, split_by_class
from shiftprism.rows import set_file
from shiftprism.shifts import make_shifted_copies

SEVERITIES = (1, 3, 5)
_IMAGES = 2000
"""The most held-out images that copies are made of."""
_EACH = 250
"""Copies of one extra at one severity: 54 such conditions are 13,500 images to forward."""
_KNOWN = 10_000
"""The most training images in the contrast of clean with shifted style, and in the bank of `spectrum`."""
_LEAST = 40
"""Fewer held-out images cannot be divided."""


class HeldOut(NamedTuple):
    """Held-out data in three disjoint parts, with shifted copies of the first."""

    known: Labelled
    """Training data and the first part: what a contrast and a bank are fitted to."""
    reference: Labelled
    """The second part, for the ranks inside a score."""
    ranked: Outputs
    """The third part, for p-values of whole scores."""
    copies: dict[str, Labelled]
    """The copies by the extra that made them."""

    @property
    def shifted(self) -> dict[str, Outputs]:
        """The Outputs of the copies alone."""
        return {name: part.outputs for name, part in self.copies.items()}


def divide_held_out(
    training: Labelled,
    held: "Dataset | Photographs",
    outputs: Outputs,
    predict: "Callable[[str, Dataset | Photographs], Outputs]",
) -> HeldOut | None:
    """The parts of the held-out images with their `outputs`; None where there are too few, or they have no style.

    Half of them are known, a quarter is the reference and a quarter is ranked. `predict` gives the Outputs of a set, by
    the file it keeps them in.
    """
    if len(held.images) < _LEAST or not outputs.S:
        return None
    first, second, reference, ranked = split_by_class(held.labels, 4, seed=0)
    # in the order of the data set, so that copies of an image are named by its number
    own = torch.cat([first, second]).sort().values
    learned = torch.linspace(0, training.outputs.N - 1, min(_KNOWN, training.outputs.N)).round().long()
    known = Labelled(
        Outputs.concat([training.outputs.rows(learned), outputs.rows(own)]),
        torch.cat([training.labels[learned], held.labels[own]]),
    )
    return HeldOut(
        known,
        Labelled(outputs.rows(reference), held.labels[reference]),
        outputs.rows(ranked),
        _predict_copies(held.rows(own), predict),
    )


def _predict_copies(
    held: "Dataset | Photographs", predict: "Callable[[str, Dataset | Photographs], Outputs]"
) -> dict[str, Labelled]:
    """Each extra at each severity on the next few hundred of the images, so that all of them serve."""
    data = held.take_evenly(_IMAGES) if isinstance(held, Photographs) else take_evenly(held, _IMAGES)
    count, size = len(data.images), min(_EACH, len(data.images))
    conditions = [(name, severity) for name in (*EXTRA, *OWN_EXTRA) for severity in SEVERITIES]
    parts: dict[str, list[Labelled]] = {}
    for number, (name, severity) in enumerate(conditions):
        rows = (number * size + torch.arange(size)) % count
        for copied in _copy(data, rows, name, severity):
            outputs = predict(f"copies/{set_file(name, severity)}", copied)
            parts.setdefault(name, []).append(Labelled(outputs, copied.labels))
    return {
        name: Labelled(Outputs.concat([one.outputs for one in own]), torch.cat([one.labels for one in own]))
        for name, own in parts.items()
    }


def _copy(
    data: "Dataset | Photographs", rows: torch.Tensor, name: str, severity: int
) -> "Iterator[Dataset | Photographs]":
    """Some of the images under an extra; nothing where it changes none of them."""
    if isinstance(data, Photographs):
        yield data.rows(rows).corrupt(name, severity)
        return
    for copy in make_shifted_copies(data.images[rows], [name], [severity], seeds=rows):
        yield Dataset(copy.images, data.labels[rows], data.names)
