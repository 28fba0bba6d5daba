"""What every metric of probabilities asks first: are these probabilities, and which class do they choose."""

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats, Integers, classes, matrix, wrong

_SUM_TOLERANCE = 1e-3
"""How far a row's sum may be from 1: a softmax in half precision passes, logits do not."""


def checked(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Integers]:
    """(N, K) probabilities in float64 and (N,) labels, or an error; logits are never guessed from their range."""
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


def top(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    """(N,) confidence, the largest probability of each row, and (N,) 1 where its class is right, else 0.

    Of two equally probable classes the first is the prediction.
    """
    array, truth = checked(probabilities, labels)
    chosen = array.argmax(1)
    return array[np.arange(len(array)), chosen], (chosen == truth).astype(np.float64)


def whole_bins(bins: int) -> int:
    """`bins`, if it is a number of bins."""
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or bins < 1:
        raise wrong("bins", "a positive whole number", repr(bins), "15 is the usual choice")
    return int(bins)


def sums(numbers: Integers, weights: Floats, size: int) -> Floats:
    """(size,): the sum of the weights that carry each number."""
    return np.asarray(np.bincount(numbers, weights, size), dtype=np.float64)


def bin_edges(bins: int) -> Floats:
    """(bins + 1,): 0, 1 / bins, …, 1."""
    # k / bins is the double nearest to the true edge, so a confidence written .2 meets the edge 3/15; linspace may not.
    return np.arange(whole_bins(bins) + 1) / bins


def bin_numbers(values: Floats, bins: int) -> Integers:
    """For each value the number k of its bin (k / bins, (k + 1) / bins]."""
    # Clipped: 0 belongs to the first bin, and a probability that rounding put above 1 to the last.
    return np.clip(np.searchsorted(bin_edges(bins), values, "left") - 1, 0, bins - 1)
