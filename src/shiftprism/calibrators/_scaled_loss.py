"""The cross entropy of logits times a positive scale: behind temperatures, α-β and the exponential map."""

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch

from shiftprism._checks import Floats, Integers

_AT_ONCE = 1 << 16
"""Numbers worked on at a time: what stays in the cache is read from memory once, not five times."""


def cache_slices(samples: int, classes: int) -> list[slice]:
    """Slices of the rows of an (N, K) array, each small enough for a processor's cache."""
    rows = max(1, _AT_ONCE // classes)
    return [slice(begin, begin + rows) for begin in range(0, samples, rows)]


def row_maxima(array: Any) -> Any:
    """(N, 1): the largest number of each row. Where K is small, torch takes a third of NumPy's time."""
    return torch.from_numpy(array).amax(1, keepdim=True).numpy()


class ScaledLoss:
    """The mean cross entropy of m · logits (N, K) as a function of the scale m > 0: one number, or one a sample."""

    def __init__(self, logits: Floats, labels: Integers) -> None:
        # A shift of a row changes no probability; with a maximum of 0 no exponential overflows.
        self.gaps = logits - row_maxima(logits)
        self.labels = labels
        self.label_gaps = self.gaps[np.arange(len(labels)), labels]
        self._slices = cache_slices(*logits.shape)
        self._buffer = np.empty((min(len(labels), self._slices[0].stop), logits.shape[1]))

    @cached_property
    def infimum(self) -> float:
        """What the loss falls to as the scale grows: 0 where the largest logit is always the label's alone.

        A label that shares its place at the top with c − 1 classes costs ln c in the limit, one below the top costs ∞.
        """
        if float(self.label_gaps.min()) < 0:
            return math.inf
        return float(np.log(np.count_nonzero(self.gaps == 0, axis=1)).mean())

    @property
    def all_right(self) -> bool:
        """Whether every label has the largest logit, and alone: a tie at the top is no right prediction."""
        return self.infimum == 0

    @cached_property
    def no_optimum(self) -> bool:
        """Whether sharper is always better: no label is below the top, and the logits are not all equal."""
        return self.infimum < math.inf and bool(self.gaps.min() < 0)

    def __call__(self, m: float | Floats, moments: int = 0) -> tuple[float, Floats, Floats]:
        """The mean loss and, with `moments` 1 or 2, each sample's E_p[z] and Var_p[z] for p = softmax(m z), or nothing.

        They give the derivatives of a sample's loss by m: the first is E_p[z] − z_y, the second is Var_p[z].
        """
        samples = len(self.labels)
        means, variances = np.empty(samples if moments > 0 else 0), np.empty(samples if moments > 1 else 0)
        log_sum = 0.0
        for part in self._slices:
            z = self.gaps[part]
            p = np.multiply(z, m[part, None] if isinstance(m, np.ndarray) else m, out=self._buffer[: len(z)])
            np.exp(p, out=p)
            total = np.einsum("nk->n", p)
            log_sum += float(np.log(total).sum())
            if moments > 0:
                means[part] = np.einsum("nk,nk->n", p, z) / total
            if moments > 1:
                np.multiply(p, z, out=p)
                variances[part] = np.einsum("nk,nk->n", p, z) / total - means[part] ** 2
        label_sum = m @ self.label_gaps if isinstance(m, np.ndarray) else m * self.label_gaps.sum()
        return (log_sum - float(label_sum)) / samples, means, variances
