"""Conformal ranks in a growing pool that is kept as counts in fixed bins, with ties broken by a hash.

Everything here gives the same bits for one observation at a time as for any batch: counts are integers, and each float
comes from operations on single elements.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

AXES = 2
"""Style and concept, in this order everywhere."""
_MOST_CELLS = 1 << 18
"""Counts that are held at once while ranks are computed."""
_MANY_GROUPS, _MANY_SLAB = 64, 2048
"""From so many groups on, scores are ranked by group, so many at once, unless that many are of one group."""
_MOST_COUNTS = 1 << 15
"""Classes times bins of one axis. More bins are joined, so that the state of 1,000 classes stays small."""


def uniforms(seed: int, numbers: Integers) -> Floats:
    """(2, n): a number in [0, 1) for each axis and observation number, the same in every run. SplitMix64.

    >>> first = uniforms(0, np.arange(1000))
    >>> bool((uniforms(0, np.arange(7, 9)) == first[:, 7:9]).all()), bool(abs(first.mean() - 0.5) < 0.02)
    (True, True)
    """
    place = numbers.astype(np.uint64) * np.uint64(AXES) + np.arange(AXES, dtype=np.uint64)[:, None]
    start = _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64))
    z = _mix(start + (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit of the input changes half of the output."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def join_bins(edges: Floats, counts: Integers) -> tuple[Floats, Integers]:
    """Edges (B − 1,) and counts (K, B) with so many neighbouring bins joined that K · B is small enough.

    Which bins are joined depends on K and B alone, so the counted scores stay exchangeable with new ones.
    """
    step = -(-counts.size // _MOST_COUNTS)
    if step <= 1:
        return edges, counts
    return edges[step - 1 :: step], np.add.reduceat(counts, np.arange(0, counts.shape[1], step), axis=1)


class Pool:
    """Counts of all scores so far, by axis, group and bin: a new score is ranked among those of its group."""

    def __init__(self, counts: Sequence[Integers]) -> None:
        """One (G, B) array for each axis. The number of bins may differ between the axes."""
        self.counts = [each.astype(np.int64) for each in counts]

    def rank(self, bins: Integers, groups: Integers, breaks: Floats, grow: bool) -> Floats:
        """p-values (2, n) of new scores, which join the pool one after the other where it may `grow`.

        p = (#{lower bins} + breaks · (#{own bin} + 1)) / (n + 1), counted in the pool as it is when the score comes.
        For exchangeable scores and independent uniform `breaks` they are independent and uniform (Vovk et al. 2003).
        """
        return np.stack([self._rank_axis(axis, bins[axis], groups, breaks[axis], grow) for axis in range(AXES)])

    def _rank_axis(self, axis: int, bins: Integers, groups: Integers, breaks: Floats, grow: bool) -> Floats:
        counts = self.counts[axis]
        width = counts.shape[1]
        keys, first = groups * width + bins, groups * width
        if not grow:
            sums = np.concatenate([[0], np.cumsum(counts)])
            below, equal, total = sums[keys] - sums[first], counts.ravel()[keys], sums[first + width] - sums[first]
            return _to_p(below, equal, total, breaks)
        row = 32 if counts.size <= 512 else 128  # long rows where there are many counts to add up
        many = len(counts) >= _MANY_GROUPS
        slab = _MANY_SLAB if many else row * max(1, _MOST_CELLS // counts.size)
        parts = []
        for start in range(0, len(keys), slab):
            part = slice(start, start + slab)
            if many and np.bincount(groups[part]).max() <= _MANY_GROUPS:
                parts.append(_rank_apart(counts, keys[part], first[part], breaks[part]))
            else:
                parts.append(_rank_slab(counts, keys[part], first[part], breaks[part], row))
            np.add.at(counts.reshape(-1), keys[part], 1)
        return np.concatenate(parts) if parts else np.zeros(0)


def _rank_slab(counts: Integers, keys: Integers, first: Integers, breaks: Floats, row: int) -> Floats:
    """p-values of scores by counts at the start of each row, and by comparing the scores of a row pair by pair."""
    n, size, width = len(keys), counts.size, counts.shape[1]
    rows = -(-n // row)
    place = np.arange(n) // row
    seen = np.bincount(place[: (rows - 1) * row] * size + keys[: (rows - 1) * row], minlength=(rows - 1) * size)
    known = np.cumsum(np.concatenate([counts.reshape(1, size), seen.reshape(rows - 1, size)]), axis=0)
    sums = np.concatenate([np.zeros((rows, 1), np.int64), np.cumsum(known, axis=1)], axis=1)
    at_first = sums[place, first]
    below, equal = sums[place, keys] - at_first, known[place, keys]
    total = sums[place, first + width] - at_first
    filled = np.full((2, rows * row), -1, np.int32)  # −1: no score, and no group
    filled[0, :n], filled[1, :n] = keys, first
    boxed, group = filled.reshape(2, rows, row)
    earlier = np.tri(row, k=-1, dtype=bool)
    less, same = boxed[:, None, :] < boxed[:, :, None], boxed[:, None, :] == boxed[:, :, None]
    below += _count(_same_group(less, group, size > width) & earlier)[:n]
    equal += _count(same & earlier)[:n]
    total += _count(_same_group(earlier, group, size > width))[:n] if size > width else np.arange(n) % row
    return _to_p(below, equal, total, breaks)


def _rank_apart(counts: Integers, keys: Integers, first: Integers, breaks: Floats) -> Floats:
    """The same for many groups: counts once, and each score beside the few earlier ones of its group."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    after = sums[first + counts.shape[1]]
    numbers = np.stack([sums[keys] - sums[first], counts.reshape(-1)[keys], after - sums[first]])
    order = np.argsort(first, kind="stable")
    own, group, extra = keys[order], first[order], np.zeros_like(numbers)
    for lag in range(1, len(keys)):
        together = group[lag:] == group[:-lag]
        if not together.any():
            break
        extra[0, lag:] += together & (own[:-lag] < own[lag:])
        extra[1, lag:] += own[:-lag] == own[lag:]  # of one bin, so of one group
        extra[2, lag:] += together
    numbers[:, order] += extra
    return _to_p(numbers[0], numbers[1], numbers[2], breaks)


def _same_group(pairs: Flags, group: NDArray[np.int32], grouped: bool) -> Flags:
    """The pairs whose members are of one group."""
    return pairs & (group[:, None, :] == group[:, :, None]) if grouped else pairs


def _count(pairs: Flags) -> Integers:
    return np.asarray(pairs.sum(-1, dtype=np.int64)).reshape(-1)


def _to_p(below: Integers, equal: Integers, total: Integers, breaks: Floats) -> Floats:
    p: Floats = (below + breaks * (equal + 1)) / (total + 1)
    return p
