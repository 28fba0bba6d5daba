"""Accuracy and the proper scoring rules: of a set of samples, of each sample, and as sums that can be merged."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats, Integers
from shiftprism.metrics._binned import class_cells
from shiftprism.metrics._probabilities import check_probabilities, top_label

_SMALLEST = float(np.finfo(np.float64).tiny)
"""A probability of 0 counts as this much, so that the NLL stays finite."""


def accuracy(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Share of samples whose most probable class is their label; of equally probable classes the first counts.

    >>> accuracy([[.9, .1], [.3, .7]], [0, 0])
    0.5
    """
    return float(top_label(probabilities, labels)[1].mean())


def nll(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Negative log-likelihood, in nats: −1/N Σ_i ln p_i[label_i].

    `probabilities` (N, K), `labels` (N,). A probability of 0 for the true class is taken as the smallest normal double,
    2.2e−308, and so costs 708.4: finite, but one such sample outweighs thousands. A softmax in float32 gives these
    zeros where the logits differ by more than about 104; take it in float64.

    >>> round(nll([[.5, .5], [.25, .75]], [0, 1]), 4)
    0.4904
    """
    return float(_log_losses(*check_probabilities(probabilities, labels)).mean())


def brier(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Multi-class Brier score: 1/N Σ_i Σ_k (p_ik − [label_i = k])², between 0 and 2.

    The sum over classes, as Brier defined it. For K = 2 it is twice scikit-learn's binary `brier_score_loss`; some
    authors divide by K.

    Reference: Brier 1950, "Verification of forecasts expressed in terms of probability".

    >>> round(brier([[.75, .25], [.25, .75]], [0, 0]), 3)
    0.625
    """
    return float(_squared_errors(*check_probabilities(probabilities, labels)).mean())


def _log_losses(probabilities: Floats, labels: Integers) -> Floats:
    """(N,): −ln p[label]."""
    likelihood = probabilities[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.maximum(likelihood, _SMALLEST)))


def _squared_errors(probabilities: Floats, labels: Integers) -> Floats:
    """(N,): Σ_k (p_k − [label = k])²."""
    residual = probabilities.copy()
    residual[np.arange(len(labels)), labels] -= 1
    return np.asarray(np.einsum("nk,nk->n", residual, residual))


class SampleScores(NamedTuple):
    """What the metrics average, for each of N samples."""

    confidence: Floats
    """(N,): the largest probability."""
    correct: Floats
    """(N,): 1 where its class is the label, else 0; the mean is `accuracy`."""
    log_loss: Floats
    """(N,): the mean is `nll`."""
    squared_error: Floats
    """(N,): the mean is `brier`."""


def sample_scores(probabilities: ArrayLike, labels: ArrayLike) -> SampleScores:
    """Confidence, correctness, NLL and Brier score of each sample: for weighted means, resamples and histograms.

    `probabilities` (N, K), `labels` (N,).

    >>> sample_scores([[.75, .25], [.25, .75]], [0, 0]).squared_error
    array([0.125, 1.125])
    """
    array, truth = check_probabilities(probabilities, labels)
    return SampleScores(*top_label(array, truth), _log_losses(array, truth), _squared_errors(array, truth))


@dataclass(frozen=True)
class ScoringSums:
    """The sums behind `accuracy`, `nll` and `brier`, four numbers: those of two sets of samples add up with `+`.

    For data that come in batches or live on several machines. `ReliabilitySums` does the same for the ECE.

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
        _, correct, log_loss, squared_error = sample_scores(probabilities, labels)
        return ScoringSums(len(correct), float(correct.sum()), float(log_loss.sum()), float(squared_error.sum()))

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
    array, truth = check_probabilities(probabilities, labels)
    samples, classes = array.shape
    number, used, total, hits = class_cells(array, truth, bins)
    mean, rate = total / np.maximum(used, 1), hits / np.maximum(used, 1)
    base = np.bincount(truth, minlength=classes) / samples
    spread = array - mean[number]
    # Σ spread · (label − rate) over a cell is Σ spread · label, because the spread sums to 0 in every cell
    covariance = spread[np.arange(samples), truth].sum()
    return BrierDecomposition(
        reliability=float(np.sum(used * (mean - rate) ** 2) / samples),
        resolution=float(np.sum(used * (rate - np.repeat(base, bins)) ** 2) / samples),
        uncertainty=float(np.sum(base * (1 - base))),
        within=float((np.square(spread).sum() - 2 * covariance) / samples),
    )
