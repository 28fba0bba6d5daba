"""What 10,000 images of each corruption in place of 2,000 change: measured on some networks, estimated for the others.

Networks that were measured with both have their rows with 2,000 images in results/ and those with 10,000 in
results/images. All of them saw the same images. So the mean change of those networks, added to the mean over all seeds
of a model, is an estimate of its mean with 10,000 images.

An interval is over seeds and images. More images leave the seed noise as it is: what is left of an interval without any
image noise is less than 10,000 images would leave.
"""

from collections.abc import Iterable, Iterator
from math import sqrt

import numpy as np
from scipy import stats

from shiftprism import claims
from shiftprism.rows import LEVEL, Effect, Measured, Results, Row

MODELS = ("vanilla", "alpha", "beta", "alpha-beta")
SCORES = (*((model, score) for model in MODELS for score in ("g", "h", "u")), ("vanilla", "energy"))
"""Those of the main table."""
CALIBRATORS = ("none", "temperature", "shift-aware")
ABOUT_CORRUPTED = (
    *("vanilla-prefers-concept-corrupted", "beta-raises-g", "beta-alone-raises-g", "g-sees-covariate"),
    *("u-best-corrupted", "beats-beta-motion-blur", "beats-alpha-vanilla-corrupted"),
    *("corrupted-ece-temperature", "corrupted-ece-matrix", "corrupted-ece-dirichlet"),
)
"""The claims that are about corrupted images and nothing else, but for rank correlations."""


def take_images(results: Results) -> Results:
    """On all corruptions: AUROC of the scores of the main table, accuracy, ECE and NLL of each calibrator."""
    scores = {score for _, score in SCORES}
    return results.take(
        n
        for n, row in enumerate(results.rows)
        if (row.shift, row.severity) == ("corrupted", 0)
        and ((row.metric == "auroc" and row.subject in scores) or row.metric in ("accuracy", "ece", "nll"))
    )


def images_scores(few: Results, many: Results) -> str:
    """For the scores of the main table: the seed mean with 2,000 images, the measured change, and the new seed mean."""
    return _tabulate("score", _changes(few, many, SCORES, "auroc", 100, 1))


def images_calibration(few: Results, many: Results) -> str:
    """The same for the mean ECE on corrupted images."""
    pairs = [(model, name) for model in MODELS for name in CALIBRATORS]
    return _tabulate("calibrator", _changes(few, many, pairs, "ece", 1, 4))


def _tabulate(subject: str, lines: Iterable[str]) -> str:
    head = f"| model | {subject} | seeds | 2,000 images | changed by | in all networks by | 10,000 images |"
    return "\n".join([f"{head} image error | then |", "| :-- | :-- |" + " --: |" * 7, *lines]) + "\n"


def _changes(
    few: Results, many: Results, pairs: Iterable[tuple[str, str]], metric: str, scale: float, digits: int
) -> Iterator[str]:
    """A line for each pair of a model and a subject.

    "Changed by" is about the networks of the model that have both, "in all networks by" about those of any model.
    """
    now, then = (_on_corrupted(one, metric) for one in (few, many))
    changes = {key: scale * (row.value - now[key].value) for key, row in then.items() if key in now}
    for model, subject in pairs:
        seeds = [scale * row.value for (name, _, what), row in now.items() if (name, what) == (model, subject)]
        both = [key for key in changes if key[::2] == (model, subject)]
        alike = [change for (_, _, what), change in changes.items() if what == subject]
        if both and len(seeds) > 1:
            mean, change = float(np.mean(seeds)), float(np.mean(alike))
            own = float(np.mean([changes[key] for key in both]))
            rounded = [round(one, digits) + 0.0 for one in (own, min(alike), max(alike))]  # no −0.0
            signed = [f"{one:+.{digits}f}".replace("-", "−") for one in rounded]
            moved = f"{signed[0]} | {signed[1]} to {signed[2]} | {mean + change:.{digits}f}"
            errors = [scale * float(np.mean([rows[key].error for key in both])) for rows in (now, then)]
            noise = " | ".join(f"{one:.{digits + 1}f}" for one in errors)
            yield f"| {model} | {subject} | {len(seeds)} | {mean:.{digits}f} | {moved} | {noise} |"


def _on_corrupted(results: Results, metric: str) -> dict[tuple[str, str, str], Row]:
    """The row of each model, network (by its weights) and subject on all corruptions."""
    found = results.where(data="cifar10", protocol="held-out", shift="corrupted", severity=0, metric=metric)
    return {(row.model, row.weights, row.subject): row for row in found.rows}


def more_images_claims(results: Results) -> str:
    """For each open claim about corrupted images the effect nearest to its bound: its interval, and by seeds alone."""
    lines = [
        "| ID data | claim | effect | half of the interval | by seeds alone | settled then |",
        "| :-- | :-- | --: | --: | --: | :-- |",
    ]
    for data, claim, effects in open_effects(results):
        nearest = min(effects, key=lambda one: abs(one.value + claim.margin) / one.error)
        # ECE in thousandths, AUROC in points
        unit, scale = ("‰", 1000) if claim.unit == "ECE" else ("points", 100)
        halves = (nearest.high - nearest.value, half_by_seeds(nearest))
        value = f"{scale * nearest.value:+.1f} {unit}".replace("-", "−")
        numbers = " | ".join(f"{scale * one:.1f} {unit}" for one in halves)
        verdict = "yes" if is_settled_by_seeds(claim, effects) else "no"
        lines.append(f"| {data} | {claim.sentence} | {value} | {numbers} | {verdict} |")
    return "\n".join(lines) + "\n"


def open_effects(results: Results) -> Iterator[tuple[str, claims.Claim, list[Effect]]]:
    """The ID data, the claim and its deciding effects, for each open claim that is about corrupted images."""
    measured = {one.title: one for one in Measured.split(results)}
    for opened in claims.open_claims(results):
        if opened.claim.name in ABOUT_CORRUPTED:
            effects = [effect for _, effect in opened.claim.measure(measured[opened.data]).effects]
            yield opened.data, opened.claim, [Effect.mean(effects)] if opened.claim.rule == "mean" else effects


def is_settled_by_seeds(claim: claims.Claim, effects: list[Effect]) -> bool:
    """Whether all intervals by seeds alone lie above the bound, or one below it; a single seed settles nothing."""
    able = [one for one in effects if one.decides]
    ends = [(one.value - half_by_seeds(one), one.value + half_by_seeds(one)) for one in able]
    all_above = len(able) == len(effects) and all(low > -claim.margin for low, _ in ends)
    return all_above or any(high < -claim.margin for _, high in ends)


def half_by_seeds(effect: Effect) -> float:
    """Half of the 95 % interval without image noise, with the degrees of freedom that it has now."""
    return float(stats.t.ppf((1 + LEVEL) / 2, effect.freedom)) * seed_error(effect)


def seed_error(effect: Effect) -> float:
    """The standard error without image noise: the variance over seeds, less the image noise in it."""
    _, over_seeds = effect.variances
    return sqrt(max(sum(variance for variance, _ in over_seeds) - own_noise(effect), 0.0))


def own_noise(effect: Effect) -> float:
    """The part of the variance over seeds that is the image noise of each network by itself."""
    found = 0.0
    for part in effect.parts.values():
        if (count := len(part)) > 1:
            apart = part[:, 1:] - part[:, 1:].mean(0)
            found += float(np.var(apart, axis=1, ddof=1).sum()) / (count - 1) / count
    return found
