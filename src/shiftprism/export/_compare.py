"""Whether an exported file says what the detector says in torch, and by how much they differ."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftprism.detector import Decision, Detector
from shiftprism.export._graphs import OUTPUTS
from shiftprism.outputs import Outputs
from shiftprism.scores import g, h, u

NEAR = 1e-4
"""A verdict may differ where the detector's own scores are so close to where it changes."""


class Differences(NamedTuple):
    """What N images show."""

    images: int
    largest: dict[str, float]
    """For each output that is a number, the largest difference."""
    labels: int
    """Images whose predicted class differs."""
    kinds: int
    """Images whose verdict differs."""
    near: int
    """Of these, images whose verdict changes in torch, too, if style and concept move by 1e-4."""

    @property
    def unexplained(self) -> int:
        """Verdicts that differ without being near the threshold."""
        return self.kinds - self.near

    def __str__(self) -> str:
        p = max(self.largest[name] for name in ("p_covariate", "p_concept", "p_combined"))
        scores = max(self.largest[name] for name in ("style", "concept"))
        return (
            f"{self.images} images: {self.kinds} verdicts differ ({self.near} of them within {NEAR:g} of the "
            f"threshold), {self.labels} classes; largest difference of a p-value {p:.2g}, of a score {scores:.2g}, "
            f"of a probability {self.largest['probabilities']:.2g}"
        )


def compare(detector: Detector, outputs: Outputs, arrays: "dict[str, NDArray[Any]]") -> Differences:
    """The detector in torch on the Outputs of some images, and what an exported file returned for the same images."""
    parts = detector.decide(outputs)
    own = parts._asdict() | {"g": g(outputs), "h": h(outputs), "u": u(outputs)}
    largest = {
        name: float(np.abs(arrays[name].astype(np.float64) - own[name].double().numpy()).max())
        for name in OUTPUTS
        if name not in ("label", "kind")
    }
    other = torch.from_numpy(arrays["kind"].astype(np.int64)) != parts.kind
    near = _changes_nearby(detector.decision, parts.style, parts.concept, parts.label)
    labels = int((arrays["label"] != parts.label.numpy()).sum())
    return Differences(len(parts.kind), largest, labels, int(other.sum()), int((other & near).sum()))


def _changes_nearby(decision: Decision, style: Tensor, concept: Tensor, label: Tensor) -> Tensor:
    """(N,): whether the verdict changes where style and concept move by up to `NEAR`.

    p-values rise with both scores, so that the four corners show every verdict in between.
    """
    steps = (-NEAR, NEAR)
    corners = [find_kinds(decision, style + a, concept + b, label) for a in steps for b in steps]
    return torch.stack([corner != corners[0] for corner in corners]).any(0)


def find_kinds(decision: Decision, style: Tensor, concept: Tensor, label: Tensor) -> Tensor:
    """(N,): the verdicts on these scores, as `Decision` decides."""
    with torch.no_grad():
        cut = decision.cut[label] if decision.by_class else decision.cut
        alarm = decision.combined_ranks(decision.combine(style, concept), label) <= cut
        shifted = decision.style_ranks(style, label) <= cut
        return torch.where(alarm, torch.where(shifted, 1, 2), 0)
