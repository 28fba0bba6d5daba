"""Checks of probabilities and labels, the predicted class, and the bins of a calibration error."""

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats, Integers, classes, matrix, wrong

_SUM_TOLERANCE = 1e-3
"""How far a row's sum may be from 1: a softmax in half precision passes, logits do not."""


def check_probabilities(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Integers]:
    """(N, K) probabilities in float64 and (N,) labels, or an error: logits are refused, never guessed."""
    array = matrix("probabilities", probabilities)
    if array.min() < 0:
        row = int(np.argmin(array.min(1)))
        got = f"{array[row].min():g} in row {row}"
        raise wrong("probabilities", "at least 0", got, "pass softmax(logits), not logits")
    rows = np.einsum("nk->n", array)  # array.sum(1) takes three times as long where K is small
    worst = int(np.argmax(np.abs(rows - 1)))
    if abs(rows[worst] - 1) > _SUM_TOLERANCE:
        got = f"a sum of {rows[worst]:g} in row {worst}"
        raise wrong(
            "probabilities", "rows that each sum to 1", got, "pass softmax(logits), computed in float32 or better"
        )
    return array, classes("labels", labels, *array.shape)


def top_label(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    """(N,) confidence, the largest probability of each row, and (N,) 1 where its class is right, else 0.

    Of two equally probable classes the first is the prediction.
    """
    array, truth = check_probabilities(probabilities, labels)
    predicted = array.argmax(1)
    return array[np.arange(len(array)), predicted], (predicted == truth).astype(np.float64)


def check_bins(bins: int) -> int:
    """`bins` if it is a positive whole number, an error otherwise."""
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or bins < 1:
        raise wrong("bins", "a positive whole number", repr(bins), "15 is the usual choice")
    return int(bins)


def sum_by_bin(numbers: Integers, values: Floats, bins: int) -> Floats:
    """(bins,): the sum of the values in each bin; `numbers` says which bin each value is in."""
    return np.asarray(np.bincount(numbers, values, bins), dtype=np.float64)


def bin_edges(bins: int) -> Floats:
    """(bins + 1,): 0, 1 / bins, …, 1."""
    # k / bins is the double nearest to the true edge, so a confidence written .2 meets the edge 3/15; linspace may not.
    return np.arange(check_bins(bins) + 1) / bins


def bin_numbers(values: ArrayLike, bins: int) -> Integers:
    """For each value in [0, 1] the number k of its bin, (k / bins, (k + 1) / bins]: the bins of `ece`.

    >>> bin_numbers([0.0, 0.2, 0.21, 1.0], bins=5)
    array([0, 0, 1, 4])
    """
    # Clipped: 0 belongs to the first bin, and a probability that rounding put above 1 to the last.
    return np.clip(np.searchsorted(bin_edges(bins), values, "left") - 1, 0, bins - 1)
