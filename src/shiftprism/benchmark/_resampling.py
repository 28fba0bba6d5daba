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
from shiftprism.benchmark._results import RESAMPLES
from shiftprism.metrics._probabilities import bin_numbers

Weights = NDArray[np.float32]
"""(n, B): how often each image is in each resample; whole numbers, with n in each column."""
BINS = 15
_CHUNK = 500
"""Rows of (n, B) worked on at a time: they fit a processor's cache, and float32 sums stay exact to 1e-6."""


@lru_cache(maxsize=32)
def draws(name: str, severity: int, n: int) -> Weights:
    """The weights of a set of n images, drawn by its name, severity and size alone: the same for every model."""
    seed = int.from_bytes(hashlib.sha256(f"{name}/{severity}/{n}".encode()).digest()[:8], "little")
    drawn = np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))
    counts = np.stack([np.bincount(one, minlength=n) for one in drawn], axis=1)
    found = np.ascontiguousarray(counts, np.float32)
    found.flags.writeable = False
    return found


def draws_for(name: str, kind: str, severity: int, n: int) -> Weights:
    """The weights of a shifted set; corrupted ones have the draws of "clean", for they are the same photographs."""
    return draws("clean", 0, n) if kind == "covariate" else draws(name, severity, n)


def place(below: Weights, position: int) -> Integers:
    """(B,): which of the sorted values stands at `position` in each resample, counted from 0.

    `below` (n + 1, B) holds the weights cumulated in the order of the values, 0 first.
    """
    return np.asarray((below[1:] <= position).sum(0), np.int64)


def cumulated(weights: Weights, order: Integers) -> Weights:
    """(n + 1, B): how much weight lies before each place of the order."""
    below = np.zeros((len(weights) + 1, weights.shape[1]), np.float32)
    np.cumsum(weights[order], 0, out=below[1:])
    return below


def medians(values: Floats, weights: Weights) -> Floats:
    """(B,): the median of each resample, the mean of the middle two where n is even."""
    order = np.argsort(values, kind="stable")
    below, ordered, n = cumulated(weights, order), values[order], len(values)
    return np.asarray((ordered[place(below, (n - 1) // 2)] + ordered[place(below, n // 2)]) / 2, np.float64)


class Ranked:
    """The ID side of detection by one score: sorted once, with the weights of every resample cumulated."""

    def __init__(self, inside: Floats, weights: Weights, tpr: float = 0.95) -> None:
        order = np.argsort(inside, kind="stable")
        self.n = len(inside)
        self.ordered = inside[order]
        self.below = cumulated(weights, order)
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

    def rejected(self, outside: Floats, weights: Weights) -> tuple[int, Floats]:
        """How many score below the threshold that accepts 95 % of ID, and how many in each resample, (B,)."""
        total = np.zeros(weights.shape[1])
        for first in range(0, len(outside), _CHUNK):
            part = slice(first, first + _CHUNK)
            total += np.einsum("jb,jb->b", weights[part], outside[part, None] < self.thresholds)
        return int((outside < self.threshold).sum()), total


def calibration_columns(probabilities: Floats, labels: Integers) -> NDArray[np.float32]:
    """(n, 3 + BINS): right or not, −ln p of the label, the Brier score; and confidence − right in the bin's column."""
    rows = np.arange(len(labels))
    chosen = probabilities.argmax(1)
    confidence, right = probabilities[rows, chosen], (chosen == labels).astype(np.float64)
    likelihood = probabilities[rows, labels]
    columns = np.zeros((len(labels), 3 + BINS), np.float32)
    columns[:, 0] = right
    columns[:, 1] = -np.log(np.maximum(likelihood, np.finfo(np.float64).tiny))
    columns[:, 2] = np.einsum("nk,nk->n", probabilities, probabilities) - 2 * likelihood + 1
    columns[rows, 3 + bin_numbers(confidence, BINS)] = confidence - right
    return columns


def calibration_values(means: Floats) -> dict[str, Floats]:
    """Accuracy, NLL, Brier score and ECE of each resample from the (B, 3 + BINS) means of the columns."""
    ece = np.abs(means[:, 3:]).sum(1)
    named = {"accuracy": means[:, 0], "nll": means[:, 1], "brier": means[:, 2], "ece": ece}
    return {name: np.asarray(values, np.float64) for name, values in named.items()}
