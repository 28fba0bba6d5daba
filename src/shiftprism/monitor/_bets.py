"""Bets on p-values: wealth that grows where small ones come too often, and is a martingale where they are uniform.

p-values are put into cells, and a bet is a density on the cells: its mean under uniform p-values is exactly 1. Several
bets share the wealth. Money moves between them at the start of each row of 16 observations and never inside one; the
learning bets learn at the start of each block of 64. So a row is computed at once, and the promise is untouched: a move
leaves the sum as it is. Each float is made by operations on single elements in a fixed order, so that the bits do not
depend on how observations are batched.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from shiftprism.monitor._ranks import AXES, Flags, Floats, Integers

ROW = 16
"""Observations for which money stays in its bets. A sudden change waits for the next row at most."""
BLOCK = 64
"""Observations between two states of `Evidence`."""
_EDGES = np.array(
    [0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06, 0.1, 0.16, 0.25, 0.36, 0.5, 0.65, 0.82, 1.0]
)
_WIDTHS = np.diff(_EDGES)
CELLS = len(_WIDTHS)
_FIXED = ((0.1, 0.1), (0.3, 0.15), (0.3, 0.4), (0.7, 0.25), (1.0, 0.2), (1.0, 0.45), (1.0, 0.7))
"""Bets (m, a) with density 1 − m + m · a p^(a − 1): a share m of the stream has shifted, more so for a small a."""
_SPANS = (128.0, 1024.0)
"""Observations over which the learning bets remember: recent changes and slow drift."""
_PRIOR = 16.0
"""Uniform p-values that a learning bet imagines before it has seen any."""
_RETURNED, _SHARED = 0.005, 0.01
"""Shares of the money in bets that go back to cash, and to the other bets, at the start of a row."""
_FIRST = 8
"""Cash pays 1 / ((j + 8) · bits(j + 8)) of itself to the bets at the start of row j. The sum over j grows like
ln ln j, so there is cash after any time, and a late change still finds bets with money in them."""
_DRIFT = (3, 5, 6)
"""The fixed bets whose cumulative sums estimate when the change began."""
BETS = len(_FIXED) + len(_SPANS)


def _mean_densities() -> Floats:
    """(fixed bets, CELLS): the mean of each density over each cell."""
    return np.array([1 - m + m * np.diff(_EDGES**a) / _WIDTHS for m, a in _FIXED])


def _mean_logs() -> Floats:
    """(CELLS,): the mean of ln p over each cell."""
    integral = _EDGES * np.log(np.maximum(_EDGES, 1e-300)) - _EDGES
    return np.asarray(np.diff(integral) / _WIDTHS)


_DENSITIES = _mean_densities()
_DRIFT_LOGS = np.log(_DENSITIES[list(_DRIFT)])
_LOG_P = _mean_logs()
_DECAY = np.array([1 - BLOCK / span for span in _SPANS])[:, None, None]


def to_cells(p: Floats) -> Integers:
    """The cell of each p-value."""
    return np.minimum(np.searchsorted(_EDGES, p, side="right") - 1, CELLS - 1)


@dataclass
class Evidence:
    """Everything that betting remembers at the start of a block."""

    cash: Floats
    """(2,): wealth that is not bet. Like `bets`, a multiple of 2^exponent."""
    bets: Floats
    """(2, BETS)."""
    exponent: Integers
    """(2,)."""
    recent: Floats
    """(SPANS, 2, CELLS): counts of cells that fade with time."""
    drift: Floats
    """(DRIFT, 2): cumulative ln of fixed bets."""
    lowest: Floats
    """(DRIFT, 2): the lowest value of drift so far; the change is estimated to follow it."""
    lowest_at: Integers
    """(DRIFT, 2): after how many tested observations."""
    sums: Floats
    """(2,): cumulative ln p."""
    lowest_sums: Floats
    """(DRIFT, 2, 2): `sums` of both axes where drift was lowest."""
    tested: int = 0
    """Observations tested before this block."""
    started: int = 0
    """The value of `tested` when this betting began."""

    @classmethod
    def start(cls, tested: int = 0) -> "Evidence":
        places = (len(_DRIFT), AXES)
        return cls(
            cash=np.ones(AXES),
            bets=np.zeros((AXES, BETS)),
            exponent=np.zeros(AXES, np.int64),
            recent=np.zeros((len(_SPANS), AXES, CELLS)),
            drift=np.zeros(places),
            lowest=np.zeros(places),
            lowest_at=np.full(places, tested, np.int64),
            sums=np.zeros(AXES),
            lowest_sums=np.zeros((*places, AXES)),
            tested=tested,
            started=tested,
        )

    @property
    def wealth(self) -> Floats:
        """(2,): as a multiple of 2^exponent."""
        return np.array([cash + math.fsum(own) for cash, own in zip(self.cash, self.bets.tolist(), strict=True)])

    def restart(self) -> "Evidence":
        """New wealth and a new search for the beginning of a change; what the bets learned stays."""
        return replace(Evidence.start(self.tested), recent=self.recent)

    def mean_log_p(self) -> Floats:
        """(2,): the mean ln p over the last two hundred or so observations; −1 where nothing happens."""
        counts = self.recent[0]
        return np.asarray(np.cumsum(counts * _LOG_P, axis=1)[:, -1] / np.cumsum(counts, axis=1)[:, -1])


class Path(NamedTuple):
    """What happened with each of n observations."""

    wealth: Floats
    """(2, n): afterwards, as a multiple of 2^exponent."""
    exponent: Integers
    """(2, n)."""
    drift: Floats
    """(DRIFT, 2, n)."""
    sums: Floats
    """(2, n)."""

    def reached(self, threshold: float) -> Flags:
        """(2, n): where the wealth is at least `threshold`."""
        return self.wealth >= np.ldexp(threshold, np.clip(-self.exponent, -2000, 2000))

    def heights(self) -> Floats:
        """(2, n): of the wealth; see `height`."""
        return height(self.wealth, self.exponent)


class Change(NamedTuple):
    """When a change is estimated to have begun, and what the sums were."""

    tested: int
    sums: Floats
    """(2,)."""


def bet(evidence: Evidence, cells: Integers, rate: float | None) -> tuple[Evidence, Path]:
    """Bet on the cells (2, n) of p-values that follow `evidence`; the evidence after them, and the path.

    n is a multiple of BLOCK, or less than a block: then the path holds, but the evidence is that of its start, since
    a state is that between blocks. `rate` is what each observation adds to the wealth where an average run length is
    promised (Shiryaev and Roberts), None for a chance of ever alarming.
    """
    n = cells.shape[1]
    rows = -(-n // ROW)
    padded = np.zeros((AXES, rows * ROW), np.int64)
    padded[:, :n] = cells
    boxed = padded.reshape(AXES, rows, ROW)
    learned, recent = _learn(evidence, cells)
    factors = np.empty((BETS, AXES, rows, ROW))
    np.take(_DENSITIES, boxed, axis=1, out=factors[: len(_FIXED)])
    owners = np.arange(rows) * ROW // BLOCK
    factors[len(_FIXED) :] = learned[:, np.arange(AXES)[:, None, None], owners[:, None], boxed]
    products = np.multiply.accumulate(factors, axis=3)
    money, exponents, after = _move_money(evidence, products[..., -1], rate)
    wealth = np.repeat(money[0][:, :, None], ROW, axis=2)
    for number in range(BETS):  # one after the other: the order of a sum must not depend on its shape
        wealth += money[number + 1][:, :, None] * products[number]
    path = Path(
        wealth.reshape(AXES, -1)[:, :n],
        np.repeat(exponents, ROW, axis=1)[:, :n],
        _accumulate(evidence.drift, np.take(_DRIFT_LOGS, cells, axis=1)),
        _accumulate(evidence.sums, _LOG_P[cells]),
    )
    if n < BLOCK:
        return evidence, path
    lowest, at, sums = _find_lowest(evidence, path, n)
    cash, bets, exponent = after
    end = Evidence(
        cash=cash,
        bets=bets,
        exponent=exponent,
        recent=recent,
        drift=path.drift[:, :, -1].copy(),
        lowest=lowest,
        lowest_at=at,
        sums=path.sums[:, -1].copy(),
        lowest_sums=sums,
        tested=evidence.tested + n,
        started=evidence.started,
    )
    return end, path


def _accumulate(start: Floats, steps: Floats) -> Floats:
    """Cumulative sums along the last axis from `start` on, added one after the other."""
    return np.cumsum(np.concatenate([start[..., None], steps], axis=-1), axis=-1)[..., 1:]


def height(wealth: Floats, exponent: Integers) -> Floats:
    """log2 of wealth · 2^exponent, linear between powers of two: its bits depend on no library's logarithm.

    >>> height(np.array([8.0, 12.0]), np.array([0, 1]))
    array([3. , 4.5])
    """
    part, power = np.frexp(wealth)
    return np.asarray(power + exponent + 2 * part - 2)


def from_height(value: float) -> float:
    """The wealth that has this height, at most 1e300: JSON has no infinity.

    >>> from_height(4.5)
    24.0
    """
    if value < -1000:
        return 0.0
    power = math.floor(value)
    return math.ldexp(1 + value - power, power) if power < 990 else 1e300


def find_change(evidence: Evidence, path: Path, at: int, axis: int) -> Change:
    """The beginning of the change that `axis` noticed with observation `at` of the path.

    For each of a few bets: the place after which the sum of its logarithms, taken from there to now, is largest
    (Page 1954). The bet with the largest sum decides.
    """
    lowest, where, sums = _find_lowest(evidence, path, at + 1)
    best = int(np.argmax(path.drift[:, axis, at] - lowest[:, axis]))
    return Change(int(where[best, axis]), sums[best, axis])


def _find_lowest(evidence: Evidence, path: Path, n: int) -> tuple[Floats, Integers, Floats]:
    """The lowest drift up to observation n of the path, after how many observations, and the sums there."""
    within = path.drift[:, :, :n]
    place = n - 1 - np.argmin(within[:, :, ::-1], axis=2)  # the last of equal ones: the latest beginning
    low = np.take_along_axis(within, place[:, :, None], axis=2)[:, :, 0]
    new = low <= evidence.lowest
    sums = np.moveaxis(path.sums[:, place], 0, -1)
    return (
        np.where(new, low, evidence.lowest),
        np.where(new, evidence.tested + place + 1, evidence.lowest_at),
        np.where(new[:, :, None], sums, evidence.lowest_sums),
    )


def _learn(evidence: Evidence, cells: Integers) -> tuple[Floats, Floats]:
    """The densities (SPANS, 2, blocks, CELLS) of the learning bets for each block, and the memory afterwards."""
    n = cells.shape[1]
    whole = n // BLOCK
    owners = np.arange(whole * BLOCK) // BLOCK
    keys = (np.arange(AXES)[:, None] * whole + owners) * CELLS + cells[:, : whole * BLOCK]
    counts = np.bincount(keys.ravel(), minlength=AXES * whole * CELLS).reshape(AXES, whole, CELLS).astype(np.float64)
    memory = np.empty((whole + 1, len(_SPANS), AXES, CELLS))
    memory[0] = evidence.recent
    for number in range(whole):
        memory[number + 1] = memory[number] * _DECAY + counts[:, number]
    used = memory[: -(-n // BLOCK)]
    return np.moveaxis(fit_decreasing(used), 0, 2), memory[whole].copy()


def fit_decreasing(counts: Floats) -> Floats:
    """The decreasing density of largest likelihood for counts (…, CELLS) and a few imagined uniform p-values.

    Grenander's estimator (1956): the slope of the least concave majorant of the cumulative counts,
    min over a < c of max over b ≥ c of the mean density between a and b. A decreasing bet never wins where p-values
    are larger than uniform ones, so images that are easier than usual raise no alarm.

    >>> uniform, low = np.zeros((2, CELLS))
    >>> low[0] = 100
    >>> density = fit_decreasing(np.stack([uniform, low]))
    >>> bool(np.allclose(density[0], 1)), bool(density[1, 0] > 1000), round(float(density[1] @ _WIDTHS), 12)
    (True, True, 1.0)
    """
    filled = np.cumsum(counts + _PRIOR * _WIDTHS, axis=-1)
    sums = np.concatenate([np.zeros_like(filled[..., :1]), filled], axis=-1)
    rise = sums[..., None, 1:] - sums[..., :-1, None]  # (…, a, b): from edge a to edge b + 1
    slope = np.where(_RUN > 0, rise, -np.inf) / np.where(_RUN > 0, _RUN, 1)
    highest = np.maximum.accumulate(slope[..., ::-1], axis=-1)[..., ::-1]  # over b ≥ c
    density = np.where(_RUN > 0, highest, np.inf).min(-2)  # over a ≤ c
    return np.asarray(density / np.cumsum(density * _WIDTHS, axis=-1)[..., -1:])


_RUN = _EDGES[None, 1:] - _EDGES[:-1, None]


def _move_money(
    evidence: Evidence, products: Floats, rate: float | None
) -> tuple[Floats, Integers, tuple[Floats, Floats, Integers]]:
    """Cash and bets (1 + BETS, 2, rows) and exponents (2, rows) at the start of each row, and all three at the end."""
    first = (evidence.tested - evidence.started) // ROW
    parts = [
        _move_axis(
            float(evidence.cash[axis]),
            evidence.bets[axis].tolist(),
            int(evidence.exponent[axis]),
            products[:, axis].T.tolist(),
            first,
            rate,
        )
        for axis in range(AXES)
    ]
    money = np.array([part[0] for part in parts]).transpose(2, 0, 1)
    exponents = np.array([part[1] for part in parts])
    cash, bets, exponent = (np.array([part[2][place] for part in parts]) for place in range(3))
    return money, exponents, (cash, bets, exponent)


_Money = tuple[float, list[float], int]


def _move_axis(
    cash: float, bets: list[float], exponent: int, products: list[list[float]], first: int, rate: float | None
) -> tuple[list[list[float]], list[int], _Money]:
    """Money at the start of each row and at the end of all. Plain floats: arrays this small are slower."""
    money_at, exponent_at = [], []
    stay = 1 - _SHARED if rate is not None else 1 - _SHARED - _RETURNED
    for index, factors in enumerate(products, first + _FIRST):
        staked = math.fsum(bets)
        if rate is None:
            paid = cash / (index * index.bit_length())
            cash = cash - paid + _RETURNED * staked
        else:
            paid = math.ldexp(rate * ROW, -exponent)
            cash = 0.0
        share = (paid + _SHARED * staked) / BETS
        bets = [stay * one + share for one in bets]
        power = math.frexp(cash + math.fsum(bets))[1]
        if abs(power) > 64:  # scaled by a power of two, which is exact
            scale = math.ldexp(1.0, -power)
            cash, bets, exponent = cash * scale, [one * scale for one in bets], exponent + power
        money_at.append([cash, *bets])
        exponent_at.append(exponent)
        bets = [one * factor for one, factor in zip(bets, factors, strict=True)]
    return money_at, exponent_at, (cash, bets, exponent)
