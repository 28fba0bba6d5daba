"""Bootstrap confidence intervals for any metric."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shiftprism._checks import Floats, array_of, wrong

_INDICES_AT_ONCE = 1_000_000
"""Resampled positions held in memory at a time."""


class Interval(NamedTuple):
    """A metric's value on the data, and the ends of its confidence interval."""

    value: float
    low: float
    high: float


def interval(
    metric: Callable[..., float],
    *samples: ArrayLike,
    paired: bool = False,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of `metric(*samples)` at confidence `level`.

    The rows of every sample are drawn again with replacement, `resamples` times, and the metric is computed again:

    - `paired=False`: each sample by itself, for id and ood: `interval(auroc, id, ood)`;
    - `paired=True`: the same rows of all, for probabilities and labels: `interval(nll, probs, labels, paired=True)`.

    A metric with options goes in as a `lambda` or a `functools.partial`. The same `seed` gives the same interval. It
    covers the sampling of the data, not the randomness of training: report several training seeds as well. `ece` is
    biased upwards, on a resample even more, so its interval misses the 0 of a calibrated model; use `debiased_ece`.

    Reference: Efron & Tibshirani 1993, "An introduction to the bootstrap", chapter 13.

    >>> from shiftprism.metrics import auroc
    >>> value, low, high = interval(auroc, [2, 3, 4, 5, 6], [1, 2, 3, 4, 3])
    >>> bool(low < value < high)
    True
    """
    from scipy.stats import bootstrap  # takes half a second to import, which only intervals should cost

    arrays = [_as_rows(f"samples[{i}]", sample) for i, sample in enumerate(samples)]
    lengths = [len(array) for array in arrays]
    if not arrays:
        raise wrong("samples", "at least one array", "none", "pass what the metric takes, after the metric")
    if paired and len(set(lengths)) > 1:
        raise wrong("samples", "of equal length when paired", f"lengths {lengths}", "leave paired=False for id and ood")
    if not 0 < level < 1:
        raise wrong("level", "in (0, 1)", level, "pass .95 for 95 %")
    if resamples < 1:
        raise wrong("resamples", "at least 1", resamples, "1000 is usual")

    def statistic(*positions: Floats) -> float:
        # SciPy resamples row numbers; paired samples share one set of them
        each = positions * len(arrays) if paired else positions
        return float(metric(*(array[at.astype(np.int64)] for array, at in zip(arrays, each, strict=True))))

    result = bootstrap(
        tuple(np.arange(n) for n in (lengths[:1] if paired else lengths)),
        statistic,
        n_resamples=resamples,
        batch=max(1, _INDICES_AT_ONCE // sum(lengths)),
        vectorized=False,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    ends = result.confidence_interval
    return Interval(float(metric(*arrays)), float(ends.low), float(ends.high))


def _as_rows(argument: str, sample: ArrayLike) -> np.ndarray[Any, Any]:
    array = array_of(argument, sample)
    if array.ndim == 0 or len(array) < 2:
        raise wrong(argument, "at least two rows", f"shape {array.shape}", "one row cannot be resampled")
    return array
