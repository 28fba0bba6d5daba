"""tools/averages.py: gains of mirror images and of an ensemble, beside differences worked by hand."""

import hashlib
from dataclasses import replace

import pytest

from averages import ENSEMBLE, MEMBER, MIRRORED, SCORES, average_gains, find_members
from lengths import SETS
from rows_examples import row
from shiftprism.rows import Results, Row

WEIGHTS = {0: "aaa", 3: "bbb", 5: "ccc"}
MEMBERS = (0, 5)


def planted() -> list[Row]:
    """Networks 0, 3 and 5 at 80, 70 and 84 %. Mirror images add 1 and 3 points to 0 and 5; their ensemble has 85 %."""
    joined = "".join(WEIGHTS[seed] for seed in MEMBERS)
    digest = hashlib.sha256(joined.encode()).hexdigest()[:12]
    values = {MEMBER: {0: 0.8, 3: 0.7, 5: 0.84}, MIRRORED: {0: 0.81, 5: 0.87}, ENSEMBLE: {0: 0.85}}
    quantities = [(score, "auroc", one) for score in SCORES for one in SETS]
    quantities += [("none", "accuracy", "clean"), ("temperature", "ece", "corrupted")]
    return [
        replace(
            row(model, shift, subject=subject, metric=metric, value=value, seed=seed, kind="both"),
            data="cifar10",
            weights=digest if model == ENSEMBLE else WEIGHTS[seed],
        )
        for model, own in values.items()
        for seed, value in own.items()
        for subject, metric, shift in quantities
    ]


def test_gains_are_over_the_very_networks() -> None:
    """One network: the members 0 and 5, mean 82; the ensemble is 3 above it, mirror images add 1 and 3."""
    _, _, *lines = average_gains(Results.without_resamples(planted())).splitlines()
    numbers = "82.0 (80.0 to 84.0) | +2.0 (+1.0 to +3.0) | +3.0 |"
    assert f"| `u` | svhn | {numbers}" in lines
    assert f"| `u` | mean of 4 | {numbers}" in lines
    assert f"| accuracy in % | clean | {numbers}" in lines
    assert "| accuracy in % | corrupted | – | – | – |" in lines
    assert len(lines) == len(SCORES) * (len(SETS) + 1) + 4


def test_the_members_are_those_whose_weights_the_ensemble_names() -> None:
    rows = Results.without_resamples(planted())
    assert find_members(rows) == MEMBERS
    with pytest.raises(SystemExit, match="no networks of alpha-beta"):
        find_members(rows.where(seed=(0, 3)))
