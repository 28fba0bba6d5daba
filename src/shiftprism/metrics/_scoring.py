"""Proper scoring rules, and accuracy."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shiftprism.metrics._binned import class_cells
from shiftprism.metrics._probabilities import checked, top

_SMALLEST = float(np.finfo(np.float64).tiny)


def accuracy(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Share of samples whose most probable class is their label; of equally probable classes the first counts.

    >>> accuracy([[.9, .1], [.3, .7]], [0, 0])
    0.5
    """
    return float(top(probabilities, labels)[1].mean())


def nll(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Negative log-likelihood, in nats: −1/N Σ_i ln p_i[label_i].

    `probabilities` (N, K), `labels` (N,). A probability of 0 for the true class is taken as the smallest normal double,
    2.2e−308, and so costs 708.4: finite, but one such sample outweighs thousands. A softmax in float32 gives these
    zeros where the logits differ by more than about 104; take it in float64.

    >>> round(nll([[.5, .5], [.25, .75]], [0, 1]), 4)
    0.4904
    """
    array, truth = checked(probabilities, labels)
    likelihood = array[np.arange(len(array)), truth]
    return float(-np.log(np.maximum(likelihood, _SMALLEST)).mean())


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Multi-class Brier score: 1/N Σ_i Σ_k (p_ik − [label_i = k])², between 0 and 2.

    The sum over classes, as Brier defined it. For K = 2 it is twice scikit-learn's binary `brier_score_loss`; some
    authors divide by K.

    Reference: Brier 1950, "Verification of forecasts expressed in terms of probability".

    >>> round(brier([[.75, .25], [.25, .75]], [0, 0]), 3)
    0.625
    """
    array, truth = checked(probabilities, labels)
    residual = array.copy()
    residual[np.arange(len(array)), truth] -= 1
    return float(np.square(residual).sum() / len(array))


@dataclass(frozen=True)
class ScoringSums:
    """The sums behind `accuracy`, `nll` and `brier`, four numbers: those of two sets of samples add up with `+`.

    For data that come in batches or live on several machines; `ReliabilitySums` is its like for the ECE.

    >>> both = ScoringSums.of([[.5, .5]], [0]) + ScoringSums.of([[.25, .75]], [1])
    >>> round(both.nll, 4), both.accuracy
    (0.4904, 1.0)
    """

    count: int
    right: float
    log_loss: float
    squares: float

    @staticmethod
    def of(probabilities: ArrayLike, labels: ArrayLike) -> "ScoringSums":
        """The sums of (N, K) `probabilities` with (N,) `labels`."""
        array, truth = checked(probabilities, labels)
        n = len(array)
        return ScoringSums(n, n * accuracy(array, truth), n * nll(array, truth), n * brier(array, truth))

    def __add__(self, other: "ScoringSums") -> "ScoringSums":
        return ScoringSums(
            self.count + other.count,
            self.right + other.right,
            self.log_loss + other.log_loss,
            self.squares + other.squares,
        )

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        return self.right / self.count

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood."""
        return self.log_loss / self.count

    @property
    def brier(self) -> float:
        """Mean multi-class Brier score."""
        return self.squares / self.count


class BrierDecomposition(NamedTuple):
    """Terms of `brier`: brier = reliability − resolution + uncertainty + within."""

    reliability: float
    """Σ_k Σ_b n_kb / N · (mean p_kb − rate_kb)²: what calibration could remove; 0 is best."""
    resolution: float
    """Σ_k Σ_b n_kb / N · (rate_kb − rate_k)²: how far the bins tell the samples apart; higher is better."""
    uncertainty: float
    """Σ_k rate_k (1 − rate_k): of the labels alone."""
    within: float
    """What bins hide: variance of p inside a bin less twice its covariance with the label; 0 if p is constant there."""


def brier_decomposition(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> BrierDecomposition:
    """Murphy's three terms of the multi-class Brier score, summed over the K classes, each binned by its own p_k.

    Binned forecasts leave a remainder (Stephenson, Coelho & Jolliffe 2008), given as `within`, so that the four add up
    to `brier` to rounding whatever the bins. The bins are those of `classwise_ece`.

    Reference: Murphy 1973, "A new vector partition of the probability score".

    >>> parts = brier_decomposition([[.75, .25], [.75, .25]], [0, 1], bins=5)
    >>> [round(part, 3) for part in parts]
    [0.125, 0.0, 0.5, 0.0]
    """
    array, truth = checked(probabilities, labels)
    samples, classes = array.shape
    number, used, total, hits = class_cells(array, truth, bins)
    mean, rate = total / np.maximum(used, 1), hits / np.maximum(used, 1)
    base = np.bincount(truth, minlength=classes) / samples
    spread = array - mean[number]
    covered = spread[np.arange(samples), truth].sum()  # Σ spread · (label − rate): the rate drops out in every cell
    return BrierDecomposition(
        reliability=float(np.sum(used * (mean - rate) ** 2) / samples),
        resolution=float(np.sum(used * (rate - np.repeat(base, bins)) ** 2) / samples),
        uncertainty=float(np.sum(base * (1 - base))),
        within=float((np.square(spread).sum() - 2 * covered) / samples),
    )
