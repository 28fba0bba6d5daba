"""What averaging gains: α-β networks as one ensemble, and each network on images and their mirror images.

Both are compared with the very networks they are made of, so the seeds of one network do not blur the gains.
"""

import hashlib
from itertools import combinations
from statistics import fmean

from lengths import SETS
from shiftprism.rows import Results, display_name

MEMBER = "alpha-beta"
MIRRORED = f"{MEMBER}-mirrored"
ENSEMBLE = f"{MEMBER}-ensemble"
SCORES = ("u", "gen", "knn", "spectrum", "entropy", "msp")
Quantity = tuple[str, str, str]
"""Subject, metric and set."""
OTHERS: dict[str, Quantity] = {
    "accuracy in %, clean": ("none", "accuracy", "clean"),
    "accuracy in %, corrupted": ("none", "accuracy", "corrupted"),
    "ECE in % with temperature, clean": ("temperature", "ece", "clean"),
    "ECE in % with temperature, corrupted": ("temperature", "ece", "corrupted"),
}


def average_gains(results: Results) -> str:
    """For each score the AUROC of one network, what mirror images add to it, and what the ensemble of them adds.

    The ensemble stands beside its own members, mirror images beside the networks that were asked about them.
    """
    own = results.where(data="cifar10", protocol="held-out", model=(MEMBER, MIRRORED, ENSEMBLE))
    members = find_members(own)
    lines = [
        "| | on | one network | mirror images add | the ensemble adds |",
        "| :-- | :-- | --: | --: | --: |",
    ]
    for score in SCORES:
        columns = [{one: _values(own, model, (score, "auroc", one)) for one in SETS} for model in _MODELS]
        for column in columns:
            column[_MEAN] = _mean_of_sets(column)
        lines += [
            _line(f"`{score}`", display_name(one), [column[one] for column in columns], members)
            for one in (*SETS, _MEAN)
        ]
    for name, quantity in OTHERS.items():
        what, _, where = name.partition(", ")
        lines.append(_line(what, where, [_values(own, model, quantity) for model in _MODELS], members))
    return "\n".join(lines) + "\n"


_MODELS = (MEMBER, MIRRORED, ENSEMBLE)
_MEAN = f"mean of {len(SETS)}"


def find_members(results: Results) -> tuple[int, ...]:
    """The seeds of the networks whose mean the ensemble is: its weights are the digest of theirs, in order of seeds."""
    weights = {row.seed: row.weights for row in results.rows if row.model == MEMBER}
    whole = {row.weights for row in results.rows if row.model == ENSEMBLE}
    for count in range(2, len(weights) + 1):
        for seeds in combinations(sorted(weights), count):
            joined = "".join(weights[seed] for seed in seeds)
            if hashlib.sha256(joined.encode()).hexdigest()[:12] in whole:
                return seeds
    raise SystemExit(f"no networks of {MEMBER} in the rows are the members of {ENSEMBLE}")


def _line(what: str, where: str, cells: list[dict[int, float]], members: tuple[int, ...]) -> str:
    alone, mirrored, ensemble = cells
    own = [alone[seed] for seed in members if seed in alone]
    gains = [value - alone[seed] for seed, value in mirrored.items() if seed in alone]
    added = [value - fmean(own) for value in ensemble.values()]
    texts = [_with_range(own, ""), _with_range(gains, "+"), _with_range(added, "+")]
    return f"| {what} | {where} | {' | '.join(texts)} |"


def _with_range(values: list[float], sign: str) -> str:
    """The mean with the least and the largest; a dash where there is none."""
    if not values:
        return "–"
    texts = [f"{value:{sign}.1f}".replace("-", "−") for value in (fmean(values), min(values), max(values))]
    return texts[0] if len(values) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def _values(results: Results, model: str, quantity: Quantity) -> dict[int, float]:
    """The value of each network in %, by its seed."""
    subject, metric, shift = quantity
    rows = results.where(model=model, subject=subject, metric=metric, shift=shift, severity=0).rows
    return {row.seed: 100 * row.value for row in rows}


def _mean_of_sets(column: dict[str, dict[int, float]]) -> dict[int, float]:
    """The mean over the sets of each network that has all of them."""
    seeds = set.intersection(*(set(own) for own in column.values()))
    return {seed: fmean(own[seed] for own in column.values()) for seed in sorted(seeds)}
