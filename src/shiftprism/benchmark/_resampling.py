"""Metrics on bootstrap resamples of the images, all at once: a resample is a weight for each image.

Drawing n of n images with replacement gives image i the whole weight w_bi in resample b, and every metric has a
weighted form. So scores are sorted once, and B resamples cost a few passes over (n, B) weights.
"""

import hashlib
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftprism._checks import Floats, Integers
from shiftprism.metrics import bin_numbers, sample_scores
from shiftprism.rows import RESAMPLES, Condition

Weights = NDArray[np.float32]
"""(n, B): how often each image is in each resample; whole numbers, with n in each column."""
BINS = 15
_CHUNK = 500
"""Rows of (n, B) processed at a time: they fit a processor's cache, and float32 sums stay exact to 1e-6."""


@lru_cache(maxsize=32)
def set_weights(name: str, severity: int, n: int) -> Weights:
    """The weights of a set of n images. They depend on its name, severity and size alone, not on the model."""
    seed = int.from_bytes(hashlib.sha256(f"{name}/{severity}/{n}".encode()).digest()[:8], "little")
    drawn = np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))
    counts = np.stack([np.bincount(one, minlength=n) for one in drawn], axis=1)
    weights = np.ascontiguousarray(counts, np.float32)
    weights.flags.writeable = False
    return weights


def condition_weights(condition: Condition, n: int) -> Weights:
    """The weights of a shifted set; corrupted images have those of the clean ones, because they are the same images."""
    if condition.kind == "covariate":
        return set_weights("clean", 0, n)
    return set_weights(condition.shift, condition.severity, n)


def place(below: Weights, position: int) -> Integers:
    """(B,): which of the sorted values stands at `position` in each resample, counted from 0.

    `below` (n + 1, B) holds the cumulative weights in the order of the values, 0 first.
    """
    return np.asarray((below[1:] <= position).sum(0), np.int64)


def cumulative_weights(weights: Weights, order: Integers) -> Weights:
    """(n + 1, B): the weight before each place of the order."""
    below = np.zeros((len(weights) + 1, weights.shape[1]), np.float32)
    np.cumsum(weights[order], 0, out=below[1:])
    return below


def medians(values: Floats, weights: Weights) -> Floats:
    """(B,): the median of each resample, the mean of the middle two where n is even."""
    order = np.argsort(values, kind="stable")
    below, ordered, n = cumulative_weights(weights, order), values[order], len(values)
    return np.asarray((ordered[place(below, (n - 1) // 2)] + ordered[place(below, n // 2)]) / 2, np.float64)


class RankedScores:
    """The ID side of detection by one score: sorted once, with the cumulative weights of every resample."""

    def __init__(self, inside: Floats, weights: Weights, tpr: float = 0.95) -> None:
        order = np.argsort(inside, kind="stable")
        self.n = len(inside)
        self.ordered = inside[order]
        self.below = cumulative_weights(weights, order)
        accepted = math.ceil(tpr * self.n * (1 - 1e-12))
        self.thresholds = self.ordered[place(self.below, self.n - accepted)]
        self.threshold = self.ordered[self.n - accepted]

    def losses(self, outside: Floats, weights: Weights) -> tuple[int, Floats]:
        """Twice the pairs in which OOD scores higher (a tie counts once), and those of each resample, (B,).

        1 − losses / (2 n m) is the AUROC; losses of disjoint sets add up.
        """
        low, high = (np.searchsorted(self.ordered, outside, side) for side in ("left", "right"))
        total = np.zeros(weights.shape[1])
        for first in range(0, len(outside), _CHUNK):
            part = slice(first, first + _CHUNK)
            lost = self.below[low[part]]
            lost += lost if (low[part] == high[part]).all() else self.below[high[part]]
            total += np.einsum("jb,jb->b", weights[part], lost)
        return int(low.sum()) + int(high.sum()), total

    def rejections(self, outside: Floats, weights: Weights) -> tuple[int, Floats]:
        """How many score below the threshold that accepts 95 % of ID, and how many in each resample, (B,)."""
        total = np.zeros(weights.shape[1])
        for first in range(0, len(outside), _CHUNK):
            part = slice(first, first + _CHUNK)
            total += np.einsum("jb,jb->b", weights[part], outside[part, None] < self.thresholds)
        return int((outside < self.threshold).sum()), total


def calibration_columns(probabilities: Floats, labels: Integers) -> NDArray[np.float32]:
    """(n, 3 + BINS): correct or not, −ln p of the label, the Brier score; confidence − correct in its bin's column."""
    confidence, correct, log_loss, squared_error = sample_scores(probabilities, labels)
    columns = np.zeros((len(labels), 3 + BINS), np.float32)
    columns[:, :3] = np.stack([correct, log_loss, squared_error], 1)
    columns[np.arange(len(labels)), 3 + bin_numbers(confidence, BINS)] = confidence - correct
    return columns


def calibration_values(means: Floats) -> dict[str, Floats]:
    """Accuracy, NLL, Brier score and ECE of each resample from the (B, 3 + BINS) means of the columns."""
    ece = np.abs(means[:, 3:]).sum(1)
    named = {"accuracy": means[:, 0], "nll": means[:, 1], "brier": means[:, 2], "ece": ece}
    return {name: np.asarray(values, np.float64) for name, values in named.items()}
