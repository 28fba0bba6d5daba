"""What 10,000 images of each corruption in place of 2,000 would change, estimated from the published rows.

An interval is over seeds and images. Five times as many corrupted images leave the seed noise as it is. Of the variance
by images they leave at best a fifth: at best, because part of it is that of the clean images, which are 10,000 already.
"""

from collections.abc import Iterator
from math import sqrt

import numpy as np
from scipy import stats

from shiftprism import claims
from shiftprism.rows import LEVEL, Effect, Measured, Results

TIMES = 5
SCORES = (
    *((model, score) for model in ("vanilla", "alpha", "beta", "alpha-beta") for score in ("g", "h", "u")),
    ("vanilla", "energy"),
)
"""Those of the main table."""
ABOUT_CORRUPTED = (
    *("vanilla-prefers-concept-corrupted", "beta-raises-g", "beta-alone-raises-g", "g-sees-covariate"),
    *("u-best-corrupted", "beats-beta-motion-blur", "beats-alpha-vanilla-corrupted"),
    *("corrupted-ece-temperature", "corrupted-ece-matrix", "corrupted-ece-dirichlet"),
)
"""The claims that are about corrupted images and nothing else, but for rank correlations."""


def more_images_scores(results: Results) -> str:
    """For the scores of the main table: AUROC on corrupted images, its standard error now, and at best."""
    (measured,) = (one for one in Measured.split(results) if one.data == "cifar10")
    lines = [
        "| model | score | seeds | AUROC on corrupted | standard error | of it images | at best with 10,000 |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    for model, score in SCORES:
        effect = measured.effect(model, "corrupted", 0, score, "auroc")
        if effect is not None and effect.seeds > 1:
            errors = (effect.error, sqrt(effect.variances[0] + own_noise(effect)), best_error(effect))
            numbers = " | ".join(f"{100 * one:.2f}" for one in errors)
            lines.append(f"| {model} | {score} | {effect.seeds} | {100 * effect.value:.1f} | {numbers} |")
    return "\n".join(lines) + "\n"


def more_images_claims(results: Results) -> str:
    """For each open claim about corrupted images the effect nearest to its bound: its interval now, and at best."""
    lines = [
        "| ID data | claim | effect | half of the interval | at best with 10,000 | settled then |",
        "| :-- | :-- | --: | --: | --: | :-- |",
    ]
    for data, claim, effects in open_effects(results):
        nearest = min(effects, key=lambda one: abs(one.value + claim.margin) / one.error)
        # ECE in thousandths, AUROC in points
        unit, scale = ("‰", 1000) if claim.unit == "ECE" else ("points", 100)
        halves = (nearest.high - nearest.value, best_half(nearest))
        value = f"{scale * nearest.value:+.1f} {unit}".replace("-", "−")
        numbers = " | ".join(f"{scale * one:.1f} {unit}" for one in halves)
        verdict = "yes" if is_settled_at_best(claim, effects) else "no"
        lines.append(f"| {data} | {claim.sentence} | {value} | {numbers} | {verdict} |")
    return "\n".join(lines) + "\n"


def open_effects(results: Results) -> Iterator[tuple[str, claims.Claim, list[Effect]]]:
    """The ID data, the claim and its deciding effects, for each open claim that is about corrupted images."""
    measured = {one.title: one for one in Measured.split(results)}
    for opened in claims.open_claims(results):
        if opened.claim.name in ABOUT_CORRUPTED:
            effects = [effect for _, effect in opened.claim.measure(measured[opened.data]).effects]
            yield opened.data, opened.claim, [Effect.mean(effects)] if opened.claim.rule == "mean" else effects


def is_settled_at_best(claim: claims.Claim, effects: list[Effect]) -> bool:
    """Whether all intervals at best lie above the bound, or one below it; one seed of a model settles nothing."""
    able = [one for one in effects if one.decides]
    low = [one.value - best_half(one) > -claim.margin for one in able]
    return (all(low) and len(able) == len(effects)) or any(one.value + best_half(one) < -claim.margin for one in able)


def best_error(effect: Effect, times: int = TIMES) -> float:
    """The standard error at best: the variance by images is divided by `times`, that by seeds stays."""
    shared, over_seeds = effect.variances
    own = own_noise(effect)
    return sqrt((shared + own) / times + max(sum(variance for variance, _ in over_seeds) - own, 0.0))


def best_half(effect: Effect) -> float:
    """Half of the 95 % interval at best, with the degrees of freedom that it has now."""
    return float(stats.t.ppf((1 + LEVEL) / 2, effect.freedom)) * best_error(effect)


def own_noise(effect: Effect) -> float:
    """The part of the variance over seeds that is the image noise of each network by itself."""
    found = 0.0
    for part in effect.parts.values():
        if (count := len(part)) > 1:
            apart = part[:, 1:] - part[:, 1:].mean(0)
            found += float(np.var(apart, axis=1, ddof=1).sum()) / (count - 1) / count
    return found
