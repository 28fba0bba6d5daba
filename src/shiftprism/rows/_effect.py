"""Intervals over seeds and images: a hierarchical bootstrap that pairs whatever shares images or seeds."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
from scipy import stats

from shiftprism._checks import Floats
from shiftprism._errors import wrong
from shiftprism.rows._results import Results
from shiftprism.rows._row import Row

DRAWS = 2000
Key = tuple[str, str, int, str, str]
"""(model, shift, severity, subject, metric)."""


@dataclass(frozen=True, eq=False)
class Effect:
    """A number with its bootstrap draws: differences, means and rank correlations of effects are effects again."""

    value: float
    draws: Floats
    """(DRAWS,): draw d takes the same images for every number, and the same seeds for every number of a model."""
    seeds: int
    """Of the model that has the fewest."""
    n: int
    """The images of the smallest set."""

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The 95 % interval, extended to the value where a bound keeps the draws below it (a rank correlation of 1)."""
        low, high = np.quantile(self.draws, (0.025, 0.975))
        return min(float(low), self.value), max(float(high), self.value)

    @property
    def low(self) -> float:
        return self.ends[0]

    @property
    def high(self) -> float:
        return self.ends[1]

    def __sub__(self, other: "Effect") -> "Effect":
        fewest = min(self.seeds, other.seeds), min(self.n, other.n)
        return Effect(self.value - other.value, self.draws - other.draws, *fewest)

    def __mul__(self, number: float) -> "Effect":
        return Effect(self.value * number, self.draws * number, self.seeds, self.n)

    @staticmethod
    def of(values: Mapping[int, float], resamples: Mapping[int, Floats], model: str, n: int) -> "Effect":
        """The mean over seeds of one `value` a seed, given (B,) `resamples` of the images for each.

        A draw takes one resample of the images, the same for all seeds (they saw the same test set), and S of the S
        seeds with replacement. A bootstrap of S seeds varies too little, by √((S−1)/S), and their deviation is itself
        an estimate, which Student's t allows for: deviations over seeds are widened by √(S/(S−1)) · t(S−1)/t(∞) at
        95 %. A single seed has no such deviation: its interval is over the images alone. Resamples are centred on the
        value, because a metric that measures a distance (ECE) is larger on a resample than on the sample.

        >>> import numpy as np
        >>> noise = np.random.default_rng(0).standard_normal(200) / 10
        >>> effect = Effect.of({0: 0.9}, {0: 0.9 + noise}, "vanilla", 100)
        >>> bool(abs(effect.high - effect.low - 2 * 1.96 / 10) < 0.05)
        True
        """
        seeds = sorted(values)
        own = np.array([values[seed] for seed in seeds], np.float64)
        images = np.stack([resamples[seed] for seed in seeds]).astype(np.float64)
        images += (own - images.mean(1))[:, None]
        columns = _columns(images.shape[1])
        common = images.mean(0)[columns]
        chosen = (_weights(model, tuple(seeds)) * images[:, columns].T).sum(1)
        return Effect(float(own.mean()), common + _widening(len(seeds)) * (chosen - common), len(seeds), n)

    @staticmethod
    def mean(effects: "Sequence[Effect]") -> "Effect":
        """The unweighted mean of several."""
        value = float(np.mean([one.value for one in effects]))
        draws = np.mean([one.draws for one in effects], axis=0)
        return Effect(value, draws, min(one.seeds for one in effects), min(one.n for one in effects))

    @staticmethod
    def rank_correlation(effects: "Sequence[Effect]") -> "Effect":
        """Spearman's correlation of the effects with their places 1, 2, 3, …: 1 where each is above the one before.

        >>> import numpy as np
        >>> ladder = [Effect(value, np.full(DRAWS, value), 1, 10) for value in (0.6, 0.7, 0.7, 0.9)]
        >>> round(Effect.rank_correlation(ladder).value, 3)
        0.949
        """
        values = np.column_stack([np.array([one.value for one in effects]), *np.stack([e.draws for e in effects], 1)])
        ranks = stats.rankdata(values, axis=0)
        places = np.arange(1.0, len(effects) + 1)[:, None]
        ranks, places = ranks - ranks.mean(0), places - places.mean()
        scale = np.sqrt((ranks**2).sum(0) * (places**2).sum())
        # effects that are all equal neither rise nor fall
        found = np.divide((ranks * places).sum(0), scale, out=np.zeros_like(scale), where=scale > 0)
        return Effect(float(found[0]), found[1:], min(one.seeds for one in effects), min(one.n for one in effects))


@dataclass(frozen=True, eq=False)
class Measured:
    """The rows of one ID data set and protocol, by (model, shift, severity, subject, metric), over seeds."""

    data: str
    protocol: str
    results: Results
    _effects: dict[Key, Effect | None] = field(default_factory=dict)

    @staticmethod
    def split(results: Results) -> "list[Measured]":
        """One for each ID data set and protocol; rows about the pixels alone belong to every protocol."""
        pairs = dict.fromkeys((row.data, row.protocol) for row in results.rows if row.model != "pixels")
        pairs = pairs or dict.fromkeys((row.data, row.protocol) for row in results.rows)
        made = []
        for data, protocol in pairs:
            rows = [(i, row) for i, row in enumerate(results.rows) if row.data == data]
            kept = [i for i, row in rows if row.protocol == protocol or row.model == "pixels"]
            made.append(Measured(data, protocol, results.take(kept)))
        return made

    @cached_property
    def index(self) -> dict[Key, dict[int, int]]:
        """{key: {seed: number of the row}}; rows of two networks for one key and seed are an error."""
        found: dict[Key, dict[int, int]] = defaultdict(dict)
        for number, row in enumerate(self.results.rows):
            seeds = found[row.model, row.shift, row.severity, row.subject, row.metric]
            other = self.results.rows[seeds[row.seed]] if row.seed in seeds and row.model != "pixels" else row
            if other.weights != row.weights or other.backbone != row.backbone:
                both = f"{other.backbone} {other.weights} and {row.backbone} {row.weights}"
                got = f"{row.model}, seed {row.seed}, of {both}"
                raise wrong("results", "of one network for each model and seed", got, "take a part with results.where")
            seeds[row.seed] = number
        return dict(found)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """{shift: kind}, in the order of the rows."""
        return {row.shift: row.kind for row in self.results.rows}

    @cached_property
    def steps(self) -> dict[str, list[int]]:
        """{shift: its severities, in order}; 0 is none, so a set without severities has an empty list."""
        found: dict[str, set[int]] = {name: set() for name in self.kinds}
        for row in self.results.rows:
            found[row.shift].add(row.severity)
        return {name: sorted(own - {0}) for name, own in found.items()}

    @property
    def title(self) -> str:
        """The data set, with the protocol where it is not the held-out one."""
        return self.data if self.protocol in ("", "held-out") else f"{self.data} ({self.protocol} protocol)"

    def shifts(self, kind: str, ladder: bool) -> list[str]:
        """The shifts of a kind: those with several severities (a ladder), or those without."""
        return [name for name, own in self.kinds.items() if own == kind and bool(self.steps[name]) == ladder]

    def rows(self, key: Key) -> list[Row]:
        """The rows of a key, one a seed; an empty list where it was not measured."""
        return [self.results.rows[i] for i in self.index.get(key, {}).values()]

    def effect(self, model: str, shift: str, severity: int, subject: str, metric: str) -> Effect | None:
        """The mean over seeds with its draws; None where it was not measured."""
        key = model, shift, severity, subject, metric
        if key not in self._effects:
            at = self.index.get(key, {})
            values = {seed: self.results.rows[i].value for seed, i in at.items()}
            resamples = {seed: self.results.resamples[i] for seed, i in at.items()}
            n = min((self.results.rows[i].n for i in at.values()), default=0)
            self._effects[key] = Effect.of(values, resamples, model, n) if at else None
        return self._effects[key]


@cache
def _columns(count: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Which resample of the images each draw takes: the same for everything that is compared."""
    return np.random.default_rng(0).integers(count, size=DRAWS)


@cache
def _weights(model: str, seeds: tuple[int, ...]) -> Floats:
    """(DRAWS, S): the share of each seed in each draw; the same for all numbers of a model, others for another."""
    key = hashlib.sha256(f"{model} {seeds}".encode()).digest()
    count = len(seeds)
    drawn = np.random.default_rng(list(key)).multinomial(count, [1 / count] * count, size=DRAWS)
    return drawn / count


def _widening(seeds: int) -> float:
    if seeds == 1:
        return 1.0
    return float(np.sqrt(seeds / (seeds - 1)) * stats.t.ppf(0.975, seeds - 1) / stats.norm.ppf(0.975))
