"""Effects: numbers with what they are on each seed and on each resample of the images, and intervals over both."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy import stats

from shiftprism._checks import Floats

DRAWS = 2000
LEVEL = 0.95
_NOISE = 0.2
"""An image part below this share of its own estimate is taken for 0: B = 200 resamples cannot tell it from 0."""
Part = tuple[str, tuple[int, ...]]
"""A model and the seeds it was trained with."""


@dataclass(frozen=True, eq=False)
class Effect:
    """A number with its 95 % interval over seeds and images. Differences, means and multiples are effects again.

    An effect is a sum over models of means over seeds. So it keeps, for each model and seed, the value and its
    deviations on B resamples of the images. Resample b draws the same images for everything, and the seeds of a model
    are the same for all its numbers: whatever two effects share cancels in their difference.

    Three kinds of noise are in it, and each is counted once:

    - *shared image noise*: all seeds and models saw the same test images. Its variance is that of the effect over the
      resamples, without the own image noise in it, which is estimated by how differently the seeds of a model move;
    - *own image noise*: each network errs on images of its own;
    - *seed noise*: another training run is another network.

    The last two are the sample variance over the S seeds, divided by S: an estimate with S − 1 degrees of freedom. The
    interval is Student's, with the degrees of freedom of Welch and Satterthwaite for a sum of variances.
    """

    parts: Mapping[Part, Floats]
    """For each model an array (S, 1 + B): the value of each seed, then its deviations on the resamples."""
    n: int
    """The images of the smallest set."""
    draws: Floats | None = None
    """(DRAWS,): draws of a number that is no sum over seeds (a rank correlation); its interval is their quantiles."""
    center: float = 0.0
    """The number itself, where there are draws."""

    @staticmethod
    def of(values: Mapping[int, float], resamples: Mapping[int, Floats], model: str, n: int) -> "Effect":
        """The mean over seeds of one `value` a seed, given (B,) `resamples` of the images for each.

        Resamples are centred on the value, because a metric that measures a distance (ECE) is larger on a resample than
        on the sample.

        >>> import numpy as np
        >>> noise = np.random.default_rng(0).standard_normal(200) / 10
        >>> effect = Effect.of({0: 0.9}, {0: 0.9 + noise}, "vanilla", 100)
        >>> bool(abs(effect.high - effect.low - 2 * 1.96 / 10) < 0.05)
        True
        """
        seeds = tuple(sorted(values))
        own = np.array([[values[seed]] for seed in seeds], np.float64)
        images = np.stack([resamples[seed] for seed in seeds]).astype(np.float64)
        images -= images.mean(1, keepdims=True)
        return Effect({(model, seeds): np.hstack([own, images])}, n)

    @property
    def seeds(self) -> int:
        """Of the model that has the fewest."""
        return min(len(seeds) for _, seeds in self.parts)

    @cached_property
    def value(self) -> float:
        if self.draws is not None:
            return self.center
        return float(sum(part[:, 0].mean() for part in self.parts.values()))

    @cached_property
    def variances(self) -> tuple[float, list[tuple[float, int]]]:
        """The variance by shared image noise; and that over the seeds of each model, with its degrees of freedom."""
        over_images = float(np.var(sum(part[:, 1:].mean(0) for part in self.parts.values()), ddof=1))
        own, over_seeds = 0.0, []
        for part in self.parts.values():
            count = len(part)
            if count > 1:
                apart = part - part.mean(0)
                own += float(np.var(apart[:, 1:], axis=1, ddof=1).sum()) / (count - 1) / count
                over_seeds.append((float((apart[:, 0] ** 2).sum()) / (count - 1) / count, count - 1))
        shared = over_images - own
        return (shared if shared > _NOISE * over_images else 0.0), over_seeds

    @cached_property
    def error(self) -> float:
        """The standard error over seeds and images."""
        if self.draws is not None:
            return float(self.draws.std())
        shared, over_seeds = self.variances
        return float(np.sqrt(shared + sum(variance for variance, _ in over_seeds)))

    @cached_property
    def freedom(self) -> float:
        """Its degrees of freedom, by Welch and Satterthwaite; infinite where no seed noise is in it."""
        over_seeds = [] if self.draws is not None else self.variances[1]
        lost = sum(variance**2 / freedom for variance, freedom in over_seeds)
        return self.error**4 / lost if lost > 0 else np.inf

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The 95 % interval. Quantiles of draws are extended to the value, where a bound keeps the draws below it."""
        tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        if self.draws is not None:
            low, high = np.quantile(self.draws, tails)
            return min(float(low), self.value), max(float(high), self.value)
        half = float(stats.t.ppf(tails[1], self.freedom)) * self.error
        return self.value - half, self.value + half

    @property
    def low(self) -> float:
        return self.ends[0]

    @property
    def high(self) -> float:
        return self.ends[1]

    def p_value(self, against: float = 0.0) -> float:
        """Of the two-sided test that the truth is `against`; below 5 % where the interval excludes it."""
        apart = abs(self.value - against)
        if self.draws is not None:
            beyond = min(float(np.mean(self.draws <= against)), float(np.mean(self.draws >= against)))
            return min(1.0, 2 * max(beyond, 1 / DRAWS))
        if self.error == 0:
            return float(apart == 0)
        return float(2 * stats.t.sf(apart / self.error, self.freedom))

    @property
    def decides(self) -> bool:
        """Whether the interval may decide which of two models is better.

        A model with one seed shows nothing of its seed noise, so its interval is too narrow. Two numbers of one network
        are another matter: their difference is about this network, and the images decide.
        """
        return len(self.parts) == 1 or self.seeds > 1

    def __sub__(self, other: "Effect") -> "Effect":
        return _add([self, other], [1.0, -1.0])

    def __mul__(self, number: float) -> "Effect":
        return _add([self], [number])

    @staticmethod
    def mean(effects: "Sequence[Effect]") -> "Effect":
        """The unweighted mean of several."""
        return _add(effects, [1 / len(effects)] * len(effects))

    @staticmethod
    def rank_correlation(effects: "Sequence[Effect]") -> "Effect":
        """Spearman's correlation of the effects with their places 1, 2, 3, …: 1 where each is above the one before.

        >>> import numpy as np
        >>> ladder = [Effect.of({0: value}, {0: np.full(200, value)}, "m", 10) for value in (0.6, 0.7, 0.7, 0.9)]
        >>> round(Effect.rank_correlation(ladder).value, 3)
        0.949
        """
        values = np.vstack([np.concatenate([[one.value], one.draw()]) for one in effects])
        ranks = stats.rankdata(values, axis=0)
        places = np.arange(1.0, len(effects) + 1)[:, None]
        ranks, places = ranks - ranks.mean(0), places - places.mean()
        scale = np.sqrt((ranks**2).sum(0) * (places**2).sum())
        # effects that are all equal neither rise nor fall
        found = np.divide((ranks * places).sum(0), scale, out=np.zeros_like(scale), where=scale > 0)
        parts = {key: part for one in effects for key, part in one.parts.items()}
        return Effect(parts, min(one.n for one in effects), found[1:], float(found[0]))

    def draw(self) -> Floats:
        """(DRAWS,): draws of the number. Those of two effects share the images, and the seeds of a model.

        The seed part is normal with the variance over seeds, widened by Student's t. The image part is one of the B
        resamples.
        """
        if self.draws is not None:
            return self.draws
        shared, _ = self.variances
        images = np.asarray(sum(part[:, 1:].mean(0) for part in self.parts.values()), np.float64)
        spread = images.std()
        draws = self.value + images[_columns(len(images))] * (np.sqrt(shared) / spread if spread else 0.0)
        for (model, seeds), part in self.parts.items():
            if len(seeds) > 1:
                draws = draws + _student(len(seeds)) * (_weights(model, seeds) @ part[:, 0])
        return np.asarray(draws, np.float64)


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's p-values of a family: below 5 % for all that may be called significant together.

    Of all families in which nothing is true, at most 5 % have any such member.

    >>> [round(p, 3) for p in adjust_p_values([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    steps = np.asarray(p_values, np.float64)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if len(order) else steps
    return [float(p) for p in adjusted]


def _add(effects: Sequence[Effect], factors: Sequence[float]) -> Effect:
    """The sum of the effects, each times its factor; what two of them share is added before it is squared."""
    parts: dict[Part, Floats] = {}
    for effect, factor in zip(effects, factors, strict=True):
        for key, part in effect.parts.items():
            parts[key] = parts.get(key, 0.0) + factor * part
    n = min(effect.n for effect in effects)
    if all(effect.draws is None for effect in effects):
        return Effect(parts, n)
    draws = sum(factor * effect.draw() for effect, factor in zip(effects, factors, strict=True))
    center = sum(factor * effect.value for effect, factor in zip(effects, factors, strict=True))
    return Effect(parts, n, np.asarray(draws, np.float64), float(center))


@cache
def _columns(count: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Which resample of the images each draw takes: the same for everything that is compared."""
    return np.random.default_rng(0).integers(count, size=DRAWS)


@cache
def _weights(model: str, seeds: tuple[int, ...]) -> Floats:
    """(DRAWS, S): weights of sum 0 that give values over seeds the variance s²/S; the same for all numbers of a model.

    Normal weights, not those of a bootstrap of seeds: with two seeds a bootstrap takes three values only.
    """
    key = hashlib.sha256(f"{model} {seeds}".encode()).digest()
    normal = np.random.default_rng(list(key)).standard_normal((DRAWS, len(seeds)))
    return np.asarray((normal - normal.mean(1, keepdims=True)) / np.sqrt(len(seeds) * (len(seeds) - 1)))


def _student(seeds: int) -> float:
    tail = (1 + LEVEL) / 2
    return float(stats.t.ppf(tail, seeds - 1) / stats.norm.ppf(tail))
