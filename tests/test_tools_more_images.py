"""tools/more_images.py: standard errors with five times as many images, beside planted seed and image noise."""

import numpy as np
import pytest

from more_images import TIMES, best_error, best_half, is_settled_at_best, more_images_scores, own_noise
from rows_examples import row
from shiftprism.claims import CLAIMS
from shiftprism.rows import RESAMPLES, Effect, Results

CLAIM = next(one for one in CLAIMS if one.name == "beats-beta-motion-blur")
WAVE = np.tile([-1.0, 1.0], RESAMPLES // 2) * np.sqrt((RESAMPLES - 1) / RESAMPLES)
"""Resamples with the sample variance 1."""
OTHER = np.repeat([-1.0, 1.0], RESAMPLES // 2) * np.sqrt((RESAMPLES - 1) / RESAMPLES)
"""The same, uncorrelated with WAVE."""


def effect(values: list[float], shared: float = 0.0, own: float = 0.0) -> Effect:
    """Two seeds whose image noise is `shared`, and `own` of which is of the network alone."""
    moves = (shared * WAVE + own * OTHER, shared * WAVE - own * OTHER)
    return Effect.of(dict(enumerate(values)), dict(enumerate(moves[: len(values)])), "alpha-beta", 2000)


def test_noise_that_all_networks_share_falls_with_the_images() -> None:
    found = effect([0.1, 0.1], shared=0.02)
    assert found.error == pytest.approx(0.02)
    assert best_error(found) == pytest.approx(0.02 / np.sqrt(TIMES))


def test_seed_noise_stays() -> None:
    found = effect([0.1, 0.3])
    assert best_error(found) == pytest.approx(found.error) == pytest.approx(0.1)  # √(.02 / 2)


def test_the_image_noise_of_each_network_falls_too() -> None:
    """Seeds .1 and .3 have a variance of .02, half of it in the mean; the networks' own noise ± .05 is ¼ of that."""
    found = effect([0.1, 0.3], own=0.05)
    assert own_noise(found) == pytest.approx(0.05**2)
    assert best_error(found) == pytest.approx(np.sqrt(0.05**2 / TIMES + 0.1**2 - 0.05**2))
    assert best_half(found) < found.high - found.value


def test_what_would_be_settled() -> None:
    """Image noise .02 about .03: the interval includes 0 now, and at best, with .02 / √5 = .009, no longer."""
    near = effect([0.03, 0.03], shared=0.02)
    assert near.low < 0
    assert is_settled_at_best(CLAIM, [near])
    assert is_settled_at_best(CLAIM, [near * -1.0])
    assert not is_settled_at_best(CLAIM, [near, effect([0.03, 0.2])])
    one = Effect.of({0: 0.03}, {0: 0.001 * WAVE}, "alpha", 2000) - effect([0.0, 0.0])
    assert not is_settled_at_best(CLAIM, [one])


def test_the_scores_of_the_main_table_are_listed() -> None:
    rows = [
        row(model, "corrupted", value=0.7 + seed / 100, seed=seed) for model in ("alpha", "beta") for seed in (0, 1)
    ]
    _, _, *lines = more_images_scores(Results.without_resamples([*rows, row("vanilla", "corrupted")])).splitlines()
    assert lines == [f"| {model} | u | 2 | 70.5 | 0.50 | 0.00 | 0.50 |" for model in ("alpha", "beta")]
