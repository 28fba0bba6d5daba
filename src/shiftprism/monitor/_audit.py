"""An accuracy from labels: observations drawn at random, and an interval from those alone."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from shiftprism._errors import wrong
from shiftprism.monitor._ranks import uniforms

_MOST = 20_000
_STREAM = 0x5EED


class Audited(NamedTuple):
    """The accuracy of the observations that were drawn and labelled."""

    value: float
    low: float
    """Of the exact 95 % interval (Clopper and Pearson 1934)."""
    high: float
    labelled: int
    missing: int
    """Drawn and not labelled yet. While there are any, the interval holds only if they are missing by chance."""


class Audit:
    """Which observations were drawn for labels, and which of their predictions were right."""

    def __init__(self, drawn: "dict[int, bool | None] | None" = None, draws: int = 0) -> None:
        self.drawn = drawn or {}
        self.draws = draws
        """How often observations were drawn: every time from new random numbers."""

    def draw(self, n: int, first: int, after: int, seed: int) -> list[int]:
        """n numbers from first … after − 1 that were not drawn before, all equally likely, ascending."""
        known = sum(first <= number < after for number in self.drawn)
        if not 0 < n <= after - first - known:
            got = f"{n} of {after - first} observations, of which {known} were drawn before"
            raise wrong("n", "at least 1 and at most the number of observations left", got, "draw fewer")
        if len(self.drawn) + n > _MOST:
            raise wrong("n", f"at most {_MOST} in all", len(self.drawn) + n, "reset the monitor, or draw fewer")
        self.draws += 1
        chosen: list[int] = []
        place = 0
        while len(chosen) < n:
            u = uniforms(seed ^ _STREAM ^ (self.draws << 32), np.arange(place, place + 2 * n))[0]
            place += 2 * n
            for number in (first + np.floor(u * (after - first)).astype(np.int64)).tolist():
                if number not in self.drawn and len(chosen) < n:
                    self.drawn[number] = None
                    chosen.append(number)
        return sorted(chosen)

    def label(self, correct: Mapping[int, bool]) -> None:
        strange = sorted(set(correct) - set(self.drawn))
        if strange:
            got = f"{len(strange)} others, such as {strange[0]}"
            raise wrong("correct", "observations that audit() drew", got, "label those alone: others are not a sample")
        self.drawn |= {int(number): bool(right) for number, right in correct.items()}

    def accuracy(self) -> "Audited | None":
        known = [right for right in self.drawn.values() if right is not None]
        if not known:
            return None
        low, high = binomial_interval(sum(known), len(known))
        return Audited(sum(known) / len(known), low, high, len(known), len(self.drawn) - len(known))


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
