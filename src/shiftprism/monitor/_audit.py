"""An accuracy from labels: observations drawn at random, and an interval from those alone."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from shiftprism._errors import wrong
from shiftprism.monitor._ranks import Integers, uniforms

_MOST = 20_000
_STREAM = 0x5EED
_CHUNK = 1 << 18


class Audited(NamedTuple):
    """The accuracy of the observations that were drawn and labelled."""

    value: float
    low: float
    """Of the exact 95 % interval (Clopper and Pearson 1934)."""
    high: float
    labelled: int
    missing: int
    """Drawn and not labelled yet. While there are any, the interval holds only if they are missing by chance."""
    first: int
    """The interval is about observations first … after − 1, of which the labelled ones are a random sample."""
    after: int


class Audit:
    """Which observations were drawn for labels last, and which predictions are known to be right or wrong."""

    def __init__(self) -> None:
        self.drawn: list[int] = []
        self.first = self.after = 0
        self.labels: dict[int, bool] = {}
        """Of all draws: where draws overlap, nothing is labelled twice."""

    def draw(self, n: int, first: int, after: int, seed: int) -> list[int]:
        """n numbers from first … after − 1, every set of n equally likely, ascending.

        They are the ones whose hash is lowest. So a larger draw has a smaller one of the same range in it, and a draw
        of a longer stream shares what it can with the one before, while each is a random sample of its own range.
        """
        if not 0 < n <= after - first:
            got = f"{n} of {after - first} observations"
            raise wrong("n", "at least 1 and at most the number of observations", got, "draw fewer")
        if n > _MOST:
            raise wrong("n", f"at most {_MOST}", n, "draw fewer")
        self.drawn = _lowest_hashes(n, first, after, seed ^ _STREAM).tolist()
        self.first, self.after = first, after
        chosen = set(self.drawn)
        if len(chosen | set(self.labels)) > _MOST:
            self.labels = {number: right for number, right in self.labels.items() if number in chosen}
        return list(self.drawn)

    def label(self, correct: Mapping[int, bool]) -> None:
        strange = sorted(set(correct) - set(self.drawn))
        if strange:
            got = f"{len(strange)} others, such as {strange[0]}"
            advice = "label those alone: others are not a sample"
            raise wrong("correct", "observations that audit() drew last", got, advice)
        self.labels |= {int(number): bool(right) for number, right in correct.items()}

    def accuracy(self) -> "Audited | None":
        """From the labels of the last draw; None without any."""
        known = [self.labels[number] for number in self.drawn if number in self.labels]
        if not known:
            return None
        low, high = binomial_interval(sum(known), len(known))
        missing = len(self.drawn) - len(known)
        return Audited(sum(known) / len(known), low, high, len(known), missing, self.first, self.after)


def _lowest_hashes(n: int, first: int, after: int, seed: int) -> Integers:
    """The n numbers from first … after − 1 with the lowest hashes, ascending."""
    numbers, hashes = np.zeros(0, np.int64), np.zeros(0)
    for start in range(first, after, _CHUNK):
        new = np.arange(start, min(start + _CHUNK, after), dtype=np.int64)
        numbers, hashes = np.concatenate([numbers, new]), np.concatenate([hashes, uniforms(seed, new)[0]])
        order = np.argsort(hashes, kind="stable")[:n]
        numbers, hashes = numbers[order], hashes[order]
    return np.sort(numbers)


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson 1934), by bisection of the binomial distribution.

    >>> [round(end, 4) for end in binomial_interval(9, 10)]
    [0.555, 0.9975]
    """
    tail = (1 - level) / 2
    low = _share_with_tail(successes, trials, tail) if successes else 0.0
    high = 1 - _share_with_tail(trials - successes, trials, tail) if successes < trials else 1.0
    return low, high


def _share_with_tail(successes: int, trials: int, tail: float) -> float:
    """The share at which `successes` or more of `trials` have probability `tail`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _upper_tail(successes, trials, middle) < tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _upper_tail(successes: int, trials: int, p: float) -> float:
    """P(X ≥ successes) of a binomial distribution."""
    if p <= 0 or p >= 1:
        return float(p >= 1)
    whole = math.lgamma(trials + 1)
    terms = (
        whole - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * math.log(p) + (trials - k) * math.log1p(-p)
        for k in range(successes, trials + 1)
    )
    return math.fsum(math.exp(term) for term in terms)
