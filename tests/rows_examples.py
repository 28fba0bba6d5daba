"""Results without a benchmark: the paper's own numbers as rows, and made-up ones with known effects."""

from itertools import permutations

import numpy as np

from shiftprism.claims import PAPER
from shiftprism.rows import RESAMPLES, Results, Row

KINDS = {"svhn": "both", "tiny-imagenet": "both", "concept-splits": "concept", "clean": "none"}


def row(
    model: str = "vanilla",
    shift: str = "clean",
    severity: int = 0,
    subject: str = "u",
    metric: str = "auroc",
    value: float = 0.5,
    seed: int = 0,
    kind: str = "covariate",
    data: str = "cifar10",
    error: float = 0.0,
    n: int = 1000,
    protocol: str = "held-out",
) -> Row:
    """A row with the names that matter; the rest is made up."""
    where = (shift, kind, severity, subject, metric, float(value), error, n)
    return Row(model, data, "small", model, seed, protocol, *where, f"{model}-{seed}", "versions", "commit")


def paper_results() -> Results:
    """The paper's tables as rows of five seeds with the mean and the standard deviation it prints."""
    spread = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / np.sqrt(2.5)  # mean 0, standard deviation 1
    orders = list(permutations(range(5)))
    rows = []
    for number, one in enumerate(PAPER):
        kind = KINDS.get(one.shift, "concept" if one.shift.startswith("cifar") else "covariate")
        for seed, z in enumerate(spread[list(orders[number * 37 % len(orders)])]):
            value = one.value + float(z) * (one.std or 0.0)
            place = (one.model, one.shift, one.severity, one.subject, one.metric, value)
            rows.append(row(*place, seed=seed, kind=kind, data=one.data, error=0.001))
    return Results.without_resamples(rows)


CORRUPTIONS = ("shot_noise", "motion_blur", "zoom_blur", "fog")
SENSITIVE = {
    ("vanilla", "g"): (0.8, 0.4),
    ("vanilla", "h"): (0.9, 1.0),
    ("alpha", "g"): (0.9, 0.5),
    ("alpha", "h"): (1.0, 1.3),
    ("beta", "g"): (1.2, 0.4),
    ("beta", "h"): (0.8, 1.1),
    ("alpha-beta", "g"): (1.6, 0.6),
    ("alpha-beta", "h"): (0.9, 1.2),
}
"""How far a score moves with covariate and with concept shift."""


def conditions(near: str, far: str) -> list[tuple[str, str, int, float, float]]:
    """(shift, kind, severity, how much of the style and how much of the concept has shifted)."""
    made = [(name, "covariate", step, 0.3 * (step or 3), 0.02) for name in CORRUPTIONS for step in range(6)]
    made += [("concept-splits", "concept", step, 0.02, 0.8 + 0.1 * step) for step in range(1, 11)]
    return [*made, (near, "concept", 0, 0.1, 1.2), ("corrupted", "covariate", 0, 0.9, 0.02), (far, "both", 0, 1.2, 0.5)]


def made_results(seeds: int = 3, data: str = "cifar10", near: str = "cifar100", far: str = "svhn") -> Results:
    """A small grid made so that every claim holds, with noise over seeds and over images."""
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    resamples = []
    images: dict[tuple[str, int], np.ndarray[tuple[int], np.dtype[np.float64]]] = {}

    def add(made: Row, error: float) -> None:
        at = made.shift, made.severity
        images.setdefault(at, rng.standard_normal(RESAMPLES))
        own = 0.2 * error * rng.standard_normal(RESAMPLES)
        rows.append(made)
        resamples.append(made.value + error * images[at] + own)

    for model in ("vanilla", "alpha", "beta", "alpha-beta"):
        for seed in range(seeds):
            luck = 0.001 * rng.standard_normal()

            for shift, kind, severity, style, concept in conditions(near, far):
                moved = {s: SENSITIVE[model, s][0] * style + SENSITIVE[model, s][1] * concept for s in "gh"}
                moved["u"] = 0.9 * moved["h"] if model == "alpha" else 1.1 * max(moved.values())
                moved["msp"] = moved["energy"] = 0.9 * moved["h"] if model == "vanilla" else moved["h"]
                for score, size in moved.items():
                    value = 1 - 0.5 * np.exp(-size) + luck + 0.001 * rng.standard_normal()
                    add(row(model, shift, severity, score, "auroc", value, seed, kind, data, 0.003), 0.003)
                    if not severity:
                        tnr = row(model, shift, severity, score, "tnr_at_tpr95", value**4, seed, kind, data, 0.01)
                        add(tnr, 0.01)

            for shift, kind, ece in (("clean", "none", 0.01), ("corrupted", "covariate", 0.12)):
                for subject in ("none", "temperature", "matrix", "dirichlet", "alpha-beta"):
                    better = (model == "alpha-beta") + (subject != "none") + (subject == "alpha-beta")
                    for metric, value in (("accuracy", 0.9), ("ece", ece * 0.8**better), ("nll", 0.3 * 0.9**better)):
                        noisy = value + 0.002 * value * rng.standard_normal()
                        add(row(model, shift, 0, subject, metric, noisy, seed, kind, data, 0.001), 0.001 * value)
                for metric in ("predictions_changed", "scores_changed"):
                    add(row(model, shift, 0, "alpha-beta", metric, 0.0, seed, kind, data), 0.0)
            add(
                row(model, "clean", 0, "training", "seconds", 60 + 0.2 * rng.standard_normal(), seed, "none", data), 0.0
            )
            add(row(model, "clean", 0, "norm", "median", 2.0, seed, "none", data, 0.01), 0.01)
            for corruption in CORRUPTIONS:
                add(row(model, corruption, 5, "norm", "median", 1.2, seed, "covariate", data, 0.01), 0.01)
    for shift, kind, distance in ((near, "concept", 0.05), (far, "both", 0.3)):
        add(row("pixels", shift, 0, "histogram", "distance", distance, 0, kind, data, protocol=""), 0.0)
    return Results(rows, np.array(resamples, np.float32))
