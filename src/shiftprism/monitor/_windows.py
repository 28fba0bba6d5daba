"""What a stream looked like over time, in constant memory: whole windows, of which pairs are joined when they are many.

Sums are integers, so they are the same for one observation at a time as for any batch.
"""

from typing import NamedTuple

import numpy as np

from shiftprism.monitor._ranks import AXES, Floats, Integers
from shiftprism.verdicts import KINDS, Verdicts

_MOST = 256
"""Windows. When there are more, pairs are joined and the size of a window doubles."""
_SIZE = 64
RECENT = 512
"""Observations that "recently" means."""
_UNIT = float(1 << 30)
"""Probabilities are summed in whole multiples of 2^−30."""
_FIELDS = ("covariate", "concept", "confidence", "variance")
Z = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


class Estimate(NamedTuple):
    """The share of predictions that are right, estimated without labels, in a window of the stream."""

    value: float
    """The mean calibrated confidence."""
    low: float
    """`value` − 1.96 √(Σ c (1 − c)) / n: if the confidences c are right, the accuracy of 95 % of windows is within."""
    high: float
    first: int
    """The number of the first observation of the window, and how many it has."""
    images: int
    covariate: float
    """The shares of the window that were flagged as covariate and as concept shift."""
    concept: float


def _to_integers(verdicts: Verdicts) -> Integers:
    """(4, n): flagged as covariate, as concept, confidence and its variance c (1 − c)."""
    units = np.rint(verdicts.confidence * _UNIT).astype(np.int64)
    spread = np.rint(verdicts.confidence * (1 - verdicts.confidence) * _UNIT).astype(np.int64)
    flags = [(verdicts.kind == kind).astype(np.int64) for kind in KINDS[1:]]
    return np.stack([*flags, units, spread])


def _estimate(sums: Integers, first: int, count: int) -> Estimate:
    mean = float(sums[2]) / _UNIT / count
    half = Z * float(np.sqrt(float(sums[3]) / _UNIT)) / count
    shares = (float(sums[0]) / count, float(sums[1]) / count)
    return Estimate(mean, max(mean - half, 0.0), min(mean + half, 1.0), first, count, *shares)


class Windows:
    """Sums over windows of equal size, the highest evidence in each, and the last few hundred observations."""

    def __init__(self) -> None:
        self.size = _SIZE
        self.total = 0
        """Observations so far."""
        self.sums = np.zeros((len(_FIELDS), _MOST), np.int64)
        self.evidence = np.full((AXES, _MOST), -np.inf)
        """(2, windows): the highest log2 of the wealth."""
        self.ring = np.zeros((len(_FIELDS), RECENT), np.int64)

    def add(self, verdicts: Verdicts) -> None:
        values = _to_integers(verdicts)
        numbers = self.total + np.arange(len(verdicts), dtype=np.int64)
        self.total += len(verdicts)
        while self.total > self.size * _MOST:
            self._join_pairs()
        if len(numbers):
            starts, places = self._split(numbers)
            self.sums[:, places] += np.add.reduceat(values, starts, axis=1)
        self.ring[:, numbers[-RECENT:] % RECENT] = values[:, -RECENT:]

    def raise_evidence(self, numbers: Integers, values: Floats) -> None:
        """Note the evidence (2, n) after the observations with these numbers."""
        starts, places = self._split(numbers)
        self.evidence[:, places] = np.maximum(self.evidence[:, places], np.maximum.reduceat(values, starts, axis=1))

    def _split(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Where in ascending numbers each window begins, and which window it is."""
        places = numbers // self.size
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        return starts, places[starts]

    def recent(self) -> "Estimate | None":
        """The last observations; None before the first."""
        count = min(self.total, RECENT)
        return _estimate(self.ring.sum(1), self.total - count, count) if count else None

    def history(self) -> list[Estimate]:
        """One estimate for each window, the last of which may be incomplete."""
        firsts = range(0, self.total, self.size)
        counts = [min(self.size, self.total - first) for first in firsts]
        pairs = enumerate(zip(firsts, counts, strict=True))
        return [_estimate(self.sums[:, place], first, count) for place, (first, count) in pairs]

    def evidence_history(self) -> Floats:
        """(2, windows): the highest log2 of the wealth in each window of `history`; −inf where nothing was tested."""
        return self.evidence[:, : -(-self.total // self.size)].copy()

    def _join_pairs(self) -> None:
        half = _MOST // 2
        joined, highest = (
            self.sums[:, ::2] + self.sums[:, 1::2],
            np.maximum(self.evidence[:, ::2], self.evidence[:, 1::2]),
        )
        self.sums[:, :half], self.sums[:, half:] = joined, 0
        self.evidence[:, :half], self.evidence[:, half:] = highest, -np.inf
        self.size *= 2
