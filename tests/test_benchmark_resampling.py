"""Weighted forms of the metrics equal the metrics of images that are drawn again, one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shiftprism import metrics
from shiftprism.benchmark._resampling import (
    RankedScores,
    Weights,
    calibration_columns,
    calibration_values,
    condition_weights,
    medians,
    set_weights,
)
from shiftprism.rows import RESAMPLES, Condition

SOME = (0, 1, 77, RESAMPLES - 1)


def drawn_again(values: NDArray[Any], weights: Weights, b: int) -> NDArray[Any]:
    """The resample itself, image by image."""
    return np.repeat(values, weights[:, b].astype(int), axis=0)


@given(st.integers(2, 60), st.integers(1, 700), st.integers(0, 99), st.booleans())
def test_detection_of_resamples(inside: int, outside: int, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    clean, other = rng.normal(size=inside), rng.normal(-0.5, size=outside)
    if ties:
        clean, other = clean.round(), other.round()
    own, theirs = set_weights("clean", 0, inside), set_weights("other", 3, outside)
    ranked = RankedScores(clean, own)
    losses, drawn = ranked.losses(other, theirs)
    pairs = 2 * inside * outside
    assert (pairs - losses) / pairs == metrics.auroc(clean, other)
    rejections, drawn_rejections = ranked.rejections(other, theirs)
    assert rejections / outside == pytest.approx(metrics.tnr_at_tpr(clean, other), abs=1e-12)
    for b in SOME:
        id, ood = drawn_again(clean, own, b), drawn_again(other, theirs, b)
        assert 1 - drawn[b] / pairs == pytest.approx(metrics.auroc(id, ood), abs=1e-6)
        assert drawn_rejections[b] / outside == pytest.approx(metrics.tnr_at_tpr(id, ood), abs=1e-6)


@given(st.integers(1, 200), st.integers(2, 5), st.integers(0, 99))
def test_calibration_of_resamples(n: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.5), n)
    labels = rng.integers(0, classes, n)
    weights = set_weights("clean", 0, n)
    found = calibration_values((weights.T @ calibration_columns(probabilities, labels) / n).astype(np.float64))
    for b in SOME:
        again, truth = drawn_again(probabilities, weights, b), drawn_again(labels, weights, b)
        for name in ("accuracy", "nll", "brier", "ece"):
            expected = getattr(metrics, name)(again, truth)
            assert found[name][b] == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(st.integers(1, 80), st.integers(0, 99))
def test_medians_of_resamples(n: int, seed: int) -> None:
    values, weights = np.random.default_rng(seed).normal(size=n).round(1), set_weights("clean", 0, n)
    found = medians(values, weights)
    for b in SOME:
        assert found[b] == np.median(drawn_again(values, weights, b))


def test_weights_are_bootstrap_draws_and_stay_the_same() -> None:
    found = set_weights("svhn", 0, 500)
    assert found.shape == (500, RESAMPLES)
    assert (found.sum(0) == 500).all()
    assert found.var() == pytest.approx(1, abs=0.05)  # nearly Poisson
    assert found[0, :8].tolist() == set_weights("svhn", 0, 500)[0, :8].tolist()
    assert not np.array_equal(found, set_weights("svhn", 1, 500))


def test_weights_are_those_of_every_version() -> None:
    """Rows added to a stored folder are paired with its own. `printf clean/0/4 | sha256sum` is 131acfe4b86de72c…"""
    drawn = np.random.default_rng(0x2CE76DB8E4CF1A13).integers(0, 4, (RESAMPLES, 4))
    expected = [[(one == image).sum() for one in drawn] for image in range(4)]
    assert set_weights("clean", 0, 4).tolist() == expected


def test_corrupted_sets_share_the_weights_of_the_clean_images() -> None:
    assert condition_weights(Condition("fog", "covariate", 3), 100) is set_weights("clean", 0, 100)
    assert condition_weights(Condition("svhn", "both", 0), 100) is not set_weights("clean", 0, 100)
