"""References and streams of synthetic scores for the tests of monitors."""

import numpy as np
from numpy.typing import NDArray

from shiftprism.verdicts import Reference, Verdicts

Floats = NDArray[np.float64]


def make_reference(seed: int = 0, n: int = 500, classes: int = 3, bins: int = 128) -> Reference:
    """Standard normal scores in bins whose edges come from other normal numbers."""
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.normal(size=(2, bins - 1)), axis=1)
    scores, labels = rng.normal(size=(2, n)), rng.integers(classes, size=n)
    counts = np.zeros((2, classes, bins), np.int64)
    for axis in range(2):
        np.add.at(counts[axis], (labels, np.searchsorted(edges[axis], scores[axis])), 1)
    names = tuple(f"class {number}" for number in range(classes))
    return Reference(
        "a" * 64, names, edges[0], edges[1], counts[0], counts[1], scores.T.copy(), 0.05, 0.9, calibrated=True
    )


def make_verdicts(style: Floats, concept: Floats, labels: "NDArray[np.int64] | None" = None) -> Verdicts:
    """Verdicts with these scores; images far below the usual scores are flagged."""
    ones = np.ones(len(style))
    kind = np.where(style < -2, "covariate", np.where(concept < -2, "concept", "in-distribution"))
    own = np.zeros(len(style), np.int64) if labels is None else labels
    return Verdicts(own, 0.9 - 0.2 * (kind != "in-distribution"), style, concept, ones, ones, ones, kind)


def draw_stream(seed: int, n: int, style: float = 0.0, concept: float = 0.0, classes: int = 3) -> Verdicts:
    """n verdicts with normal scores of these means."""
    rng = np.random.default_rng([seed, 1])
    return make_verdicts(rng.normal(style, size=n), rng.normal(concept, size=n), rng.integers(classes, size=n))
