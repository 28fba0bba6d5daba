"""How many seeds would settle a claim that is open: the power of its intervals, at the effects that the rows show."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Literal, NamedTuple

from scipy import stats

from shiftprism._errors import wrong
from shiftprism.claims._claim import Claim, Estimate, judge_claim, make_estimate, take_deciding
from shiftprism.claims._list import CLAIMS
from shiftprism.rows import LEVEL, Effect, Measured, Results

POWER = 0.8
"""The chance of being settled that counts as enough."""
MOST_SEEDS = 10
"""Claims that need more seeds of a model are called undecided at this size."""


class Noise(NamedTuple):
    """How far an effect is from its bound, and what its interval is made of."""

    apart: float
    """The effect seen, minus the bound."""
    shared: float
    """Variance by the images that all networks saw."""
    over_seeds: tuple[tuple[str, float], ...]
    """(model, variance of the value of one seed): seed noise, and the image noise of each network."""

    def power(self, seeds: Mapping[str, int], tail: float = (1 - LEVEL) / 2) -> float:
        """The chance that the interval excludes the bound on the side of the effect seen, with so many seeds a model.

        The estimate has the variance e² = shared + Σ s²/S over the models and, by Welch and Satterthwaite, ν = e⁴ / Σ
        (s²/S)²/(S − 1) degrees of freedom. So apart/e is noncentral t, and the chance is P(T > t₁₋ₜₐᵢₗ).

        Ten seeds show a difference of one standard deviation with a power of 80 %:

        >>> round(Noise(1.0, 0.0, (("vanilla", 1.0),)).power({"vanilla": 10}), 3)
        0.803
        """
        parts = [(variance / seeds[model], seeds[model]) for model, variance in self.over_seeds]
        total = self.shared + sum(variance for variance, _ in parts)
        if total == 0:
            return float(self.apart != 0)
        if any(count < 2 for _, count in parts):
            return 0.0  # one seed decides nothing
        lost = sum(variance**2 / (count - 1) for variance, count in parts)
        far = abs(self.apart) / math.sqrt(total)
        freedom = total**2 / lost if lost > 0 else math.inf
        if freedom > 1e6:  # the noncentral t is normal there, and scipy loses its digits
            return float(stats.norm.sf(stats.norm.ppf(1 - tail) - far))
        return float(stats.nct.sf(stats.t.ppf(1 - tail, freedom), freedom, far))


@dataclass(frozen=True)
class OpenClaim:
    """A claim that the rows cannot tell: its deciding effects with their noise, and the chance to settle it."""

    claim: Claim
    data: str
    evidence: tuple[Estimate, ...]
    noises: tuple[Noise, ...]
    """One for each of the evidence; empty where nothing can be said, and `note` says why."""
    seeds: Mapping[str, int]
    """How many each model in it has now."""
    note: str = ""

    @property
    def outcome(self) -> Literal["holds", "contradicted"]:
        """What the claim would be if the truth were the effects seen."""
        apart = [noise.apart for noise in self.noises] or [one.value + self.claim.margin for one in self.evidence]
        return "contradicted" if min(apart) < 0 else "holds"

    def power(self, seeds: Mapping[str, int]) -> float:
        """The chance that the claim is settled with so many seeds a model, if the truth is the effects seen.

        To hold, each of k intervals must lie above the bound: at least 1 − Σ(1 − powerᵢ), however they depend. To be
        contradicted, one must lie below it with the level of Holm's first step, 5 %/k: at least the largest power.
        """
        if self.outcome == "holds":
            return 1 - sum(1 - noise.power(seeds) for noise in self.noises)
        tail = (1 - LEVEL) / 2 / len(self.noises)
        return max(noise.power(seeds, tail) for noise in self.noises if noise.apart < 0)

    @cached_property
    def required_seeds(self) -> int | None:
        """The smallest number of seeds a model, at most ten, with a chance of 80 %; None where there is none.

        A model that has more keeps them.
        """
        for count in range(2, MOST_SEEDS + 1) if self.noises else ():
            if self.power({model: max(now, count) for model, now in self.seeds.items()}) >= POWER:
                return count
        return None

    @property
    def required_text(self) -> str:
        """The seeds that it needs, for a reader."""
        if not self.noises:
            return "–"
        return f"more than {MOST_SEEDS}" if self.required_seeds is None else str(self.required_seeds)

    @property
    def seeds_text(self) -> str:
        """The seeds of each model in it, those with the same number together."""
        by_count: dict[int, list[str]] = {}
        for model, count in self.seeds.items():
            by_count.setdefault(count, []).append(model)
        return "; ".join(f"{count} of {', '.join(models)}" for count, models in by_count.items())

    @property
    def hardest(self) -> Estimate:
        """Of the deciding effects the one that is hardest to settle, or of those below the bound the easiest."""
        if not self.noises:
            return self.evidence[0]
        many = {model: max(now, MOST_SEEDS) for model, now in self.seeds.items()}
        powers = [noise.power(many) for noise in self.noises]
        if self.outcome == "contradicted":
            powers = [-power if noise.apart < 0 else 1.0 for power, noise in zip(powers, self.noises, strict=True)]
        return self.evidence[powers.index(min(powers))]


def open_claims(results: Results) -> list[OpenClaim]:
    """The claims that are "not shown" on each ID data set (and protocol) among the rows.

    >>> from shiftprism.rows import Row
    >>> def row(score, value, seed):
    ...     where = "vanilla", "mine", "small", "vanilla", seed, "held-out", "fog", "covariate", 1
    ...     return Row(*where, score, "auroc", value, 0.001, 500, "", "", "")
    >>> values = {"g": (0.70, 0.75, 0.74), "h": (0.75, 0.76, 0.78)}
    >>> rows = [row(score, value, seed) for score in values for seed, value in enumerate(values[score])]
    >>> (one,) = open_claims(Results.without_resamples(rows))
    >>> one.claim.name, one.outcome, dict(one.seeds), one.required_seeds
    ('vanilla-prefers-concept-corrupted', 'holds', {'vanilla': 3}, 6)
    """
    if not results.rows:
        raise wrong("results", "rows of a benchmark", "none", "run `shiftprism benchmark` first")
    pairs = [(measured, claim) for measured in Measured.split(results) for claim in CLAIMS]
    findings = ((measured, claim, judge_claim(claim, measured)) for measured, claim in pairs)
    return [_open_claim(claim, measured) for measured, claim, one in findings if one.judgement == "not shown"]


def _open_claim(claim: Claim, measured: Measured) -> OpenClaim:
    deciding = take_deciding(claim, claim.measure(measured).effects)
    evidence = tuple(make_estimate(name, effect, claim) for name, effect in deciding)
    effects = [effect for _, effect in deciding]
    seeds: dict[str, int] = {}
    for model, own in (key for effect in effects for key in effect.parts):
        seeds[model] = min(seeds.get(model, len(own)), len(own))
    note = ""
    if not claim.is_about_training:
        note = "no training is in it: other images might settle it, seeds will not"
    elif any(effect.draws is not None for effect in effects):
        note = "no estimate: a rank correlation has no simple power"
    elif all(count == 1 for count in seeds.values()):
        note = "no estimate: no model has two seeds"
    if note:
        return OpenClaim(claim, measured.title, evidence, (), seeds, note)
    # a model with one seed shows nothing of its noise: that of the other models in the claim is taken for it
    guess = median(variance for effect in effects for _, variance in _seed_variances(effect))
    noises = tuple(_noise(effect, -claim.margin, guess) for effect in effects)
    single = [model for model, count in seeds.items() if count == 1]
    rough = "rough: noise over two seeds" if min(seeds.values()) == 2 else ""
    note = f"rough: seed noise assumed, for want of a second seed of {', '.join(single)}" if single else rough
    return OpenClaim(claim, measured.title, evidence, noises, seeds, note)


def _noise(effect: Effect, bound: float, guess: float) -> Noise:
    """The noise of an effect; the variance over seeds of a model with one seed is the `guess`."""
    known = _seed_variances(effect)
    unknown = [(model, guess) for model, seeds in effect.parts if len(seeds) == 1]
    return Noise(effect.value - bound, effect.variances[0], (*known, *unknown))


def _seed_variances(effect: Effect) -> Sequence[tuple[str, float]]:
    """(model, sample variance over its seeds) for the models with two seeds or more."""
    several = [(model, len(seeds)) for model, seeds in effect.parts if len(seeds) > 1]
    found = zip(several, effect.variances[1], strict=True)
    return [(model, variance * count) for (model, count), (variance, _) in found]
