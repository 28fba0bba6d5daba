"""A detector for a network whose precision has changed: its scores, calibrator and ranks are fitted anew."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftprism.classifier import Classifier
from shiftprism.corruptions import EXTRA, OWN_EXTRA
from shiftprism.detector import Detector
from shiftprism.export._graphs import FIELDS
from shiftprism.outputs import Outputs
from shiftprism.shifts import make_shifted_copies

_BATCH = 64
SEED = 0
"""Of the division of the held-out images."""
_SEVERITIES = (1, 3, 5)
"""Of shifted copies; image n has the (n mod 3)-th."""


def split_batches(images: Sequence[Tensor] | Tensor) -> Iterator[NDArray[Any]]:
    """(N, C, H, W): neighbours of one size, a few at a time."""
    each = (images[number] for number in range(len(images)))
    for _, group in itertools.groupby(each, key=lambda image: image.shape):
        while part := list(itertools.islice(group, _BATCH)):
            yield torch.stack(part).numpy()


def run_network(session: Any, images: Sequence[Tensor] | Tensor) -> Outputs:
    """The Outputs of a converted network, in the order of the images."""
    parts = [session.run(list(FIELDS), {"images": batch}) for batch in split_batches(images)]
    return Outputs(*(torch.from_numpy(np.concatenate(each)) for each in zip(*parts, strict=True)))


def refit(
    detector: Detector,
    classifier: Classifier,
    session: Any,
    images: Sequence[Tensor] | Tensor,
    labels: ArrayLike | None,
) -> tuple[Detector, Outputs]:
    """A detector of what the converted network says about held-out images, and that.

    As in `Detector.fit`: the same concept score, level and division; style is fitted to a shifted copy of every image
    under each extra corruption.
    """
    outputs = run_network(session, images)
    shifted = {}
    for name in (*EXTRA, *OWN_EXTRA):
        copies = [_copy(images[number], name, number) for number in range(len(images))]
        if any(not torch.equal(one, images[number]) for number, one in enumerate(copies)):
            shifted[name] = run_network(session, copies)
    fitted = Detector.from_outputs(
        outputs,
        labels,
        shifted=shifted,
        head=classifier.head,
        names=detector.names,
        false_alarm=detector.false_alarm,
        confidence=detector.confidence,
        by_class=detector.by_class,
        concept=detector.concept,
        seed=SEED,
    )
    return fitted, outputs


def _copy(image: Tensor, name: str, number: int) -> Tensor:
    """One image under one corruption; itself where that changes nothing."""
    severity = _SEVERITIES[number % len(_SEVERITIES)]
    made = list(make_shifted_copies(image[None], [name], [severity], seeds=torch.tensor([number])))
    return made[0].images[0] if made else image
