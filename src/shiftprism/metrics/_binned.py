"""Reliability by bins of confidence, and the calibration errors read from it."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats, Integers, wrong
from shiftprism.metrics._probabilities import (
    bin_edges,
    bin_numbers,
    check_bins,
    check_probabilities,
    sum_by_bin,
    top_label,
)


class Reliability(NamedTuple):
    """What a reliability diagram shows of B bins; a bin without samples has NaN for confidence and accuracy."""

    edges: Floats
    """(B + 1,): 0, 1/B, …, 1; bin b holds edges[b] < confidence ≤ edges[b + 1], the first one also 0."""
    count: Integers  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    """(B,): samples in each bin."""
    confidence: Floats
    """(B,): mean confidence."""
    accuracy: Floats
    """(B,): share of right predictions."""

    @property
    def ece(self) -> float:
        """Σ_b n_b / N · |accuracy_b − confidence_b|."""
        gaps = self.count * np.abs(self.accuracy - self.confidence)
        return float(np.nansum(gaps) / self.count.sum())

    def intervals(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """(low, high), (B,) each: Wilson's score interval of each bin's accuracy, NaN where a bin is empty.

        Reference: Wilson 1927, "Probable inference, the law of succession, and statistical inference".

        >>> low, high = reliability([[.9, .1]] * 10, [0] * 9 + [1], bins=1).intervals()
        >>> round(float(low[0]), 4), round(float(high[0]), 4)
        (0.5958, 0.9821)
        """
        if not 0 < level < 1:
            raise wrong("level", "in (0, 1)", level, "pass .95 for 95 %")
        z = NormalDist().inv_cdf((1 + level) / 2)
        n = np.where(self.count > 0, self.count, np.nan)
        middle = (self.accuracy + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * np.sqrt(self.accuracy * (1 - self.accuracy) / n + z * z / (4 * n * n))
        return middle - half, middle + half


@dataclass(frozen=True, eq=False)
class ReliabilitySums:
    """The sums behind a `Reliability`, three numbers a bin: those of two sets of samples add up with `+`.

    For data that come in batches or live on several machines; the merged sums give the ECE of the whole to rounding.

    >>> first = ReliabilitySums.of([[.9, .1], [.3, .7]], [0, 0])
    >>> both = first + ReliabilitySums.of([[.2, .8]], [1])
    >>> round(both.reliability().ece, 4)
    0.3333
    """

    count: Integers
    """(B,): samples."""
    confidence: Floats
    """(B,): sum of their confidences."""
    correct: Floats
    """(B,): how many of them are right."""

    @staticmethod
    def of(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> "ReliabilitySums":
        """The sums of (N, K) `probabilities` with (N,) `labels`."""
        confidence, correct = top_label(probabilities, labels)
        number = bin_numbers(confidence, bins)
        return ReliabilitySums(
            np.bincount(number, minlength=bins), sum_by_bin(number, confidence, bins), sum_by_bin(number, correct, bins)
        )

    def __add__(self, other: "ReliabilitySums") -> "ReliabilitySums":
        if len(self.count) != len(other.count):
            got = f"{len(self.count)} beside {len(other.count)} bins"
            raise wrong("other", "sums over the same bins", got, "use one number of bins everywhere")
        return ReliabilitySums(
            self.count + other.count, self.confidence + other.confidence, self.correct + other.correct
        )

    def reliability(self) -> Reliability:
        """Means instead of sums."""
        filled = np.where(self.count > 0, self.count, np.nan)
        return Reliability(bin_edges(len(self.count)), self.count, self.confidence / filled, self.correct / filled)


def reliability(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> Reliability:
    """Count, mean confidence and accuracy in `bins` bins of equal width: what `ece` sums and a diagram draws.

    Confidence is the largest of the K probabilities. Bins are open on the left and closed on the right.

    >>> reliability([[.9, .1], [.3, .7]], [0, 0], bins=2).count
    array([0, 2])
    """
    return ReliabilitySums.of(probabilities, labels, bins).reliability()


def ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error: Σ_b n_b / N · |accuracy_b − mean confidence_b|, in bins of equal width.

    `probabilities` (N, K), `labels` (N,). Bins are open on the left and closed on the right: a confidence of exactly 1
    is in the last bin, one of 2/15 in the second of 15, and 0 in the first. Biased upwards on small samples.

    Reference: Guo et al. 2017, "On calibration of modern neural networks".

    >>> ece([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], [0, 0, 0, 1])  # sure, and right 3 times of 4
    0.25
    """
    return reliability(probabilities, labels, bins).ece


def adaptive_ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """ECE with bins of equal count: Σ_b n_b / N · |accuracy_b − mean confidence_b| over runs of the sorted confidences.

    Counts differ by one at most; with fewer samples than `bins` each sample is a bin. Equal confidences share their
    right and wrong answers evenly, so the order of the input never matters.

    Reference: Nguyen & O'Connor 2015, "Posterior calibration and exploratory analysis for NLP models".

    >>> round(adaptive_ece([[.9, .1], [.8, .2], [.3, .7], [.4, .6]], [0, 0, 0, 1], bins=2), 3)
    0.15
    """
    confidence, correct = top_label(probabilities, labels)
    values, tied, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    gaps = np.repeat(values - np.bincount(tied, correct) / counts, counts)
    number = np.arange(len(gaps)) * check_bins(bins) // len(gaps)
    return float(np.abs(np.bincount(number, gaps)).sum() / len(gaps))


def classwise_ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Mean over the K classes of the ECE of p_k against "the label is k": Σ_k Σ_b n_kb / (N K) · |rate_kb − mean p_kb|.

    It looks at all K probabilities where `ece` looks at the largest. With many classes most of p_k is near 0, so the
    value is small; compare it only between models of the same K.

    Reference: Kull et al. 2019, "Beyond temperature scaling: Dirichlet calibration".

    >>> classwise_ece([[.75, .25], [.75, .25]], [0, 1], bins=5)
    0.25
    """
    array, truth = check_probabilities(probabilities, labels)
    cells = class_cells(array, truth, bins)
    return float(np.abs(cells.total - cells.hits).sum() / array.size)


def debiased_ece(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Squared calibration error without its bias: Σ_b n_b / N · [(acc_b − conf_b)² − acc_b (1 − acc_b) / (n_b − 1)].

    The subtracted term is the sampling variance of acc_b. The value is a *square*, and a calibrated model gives values
    on both sides of 0: take `max(0, x) ** .5` to compare it with other errors, but average before that. A bin of one
    sample has no variance to subtract and counts 0. Bins are those of `ece`; the authors' code takes equal counts.

    Reference: Kumar, Liang & Ma 2019, "Verified uncertainty calibration".

    >>> debiased_ece([[1.0, 0.0]] * 4, [0, 0, 0, 1])  # 1/16 − (3/16) / 3
    0.0
    """
    _, count, confidence, accuracy = reliability(probabilities, labels, bins)
    several = count > 1
    n, gap, rate = count[several], (accuracy - confidence)[several], accuracy[several]
    return float(np.sum(n * (gap**2 - rate * (1 - rate) / (n - 1))) / count.sum())


class ClassCells(NamedTuple):
    """Sums over the K · B cells of one class and one bin of its probability; cell k · B + b."""

    number: Integers
    """(N, K): the cell of each probability."""
    used: Integers
    """(K · B,): how many probabilities are in the cell."""
    total: Floats
    """(K · B,): their sum."""
    hits: Integers
    """(K · B,): how many of them belong to the true class."""


def class_cells(probabilities: Floats, labels: Integers, bins: int) -> ClassCells:
    """The cells of (N, K) `probabilities` with `labels`, each class in `bins` bins."""
    samples, classes = probabilities.shape
    number = bin_numbers(probabilities, bins) + bins * np.arange(classes)
    size = classes * bins
    return ClassCells(
        number,
        np.bincount(number.ravel(), minlength=size),
        sum_by_bin(number.ravel(), probabilities.ravel(), size),
        np.bincount(number[np.arange(samples), labels], minlength=size),
    )
