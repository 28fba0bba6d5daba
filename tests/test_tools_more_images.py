"""tools/more_images.py: standard errors without image noise, and what more images change in planted rows."""

from dataclasses import replace

import numpy as np
import pytest

from more_images import (
    half_by_seeds,
    images_calibration,
    images_scores,
    is_settled_by_seeds,
    own_noise,
    seed_error,
    take_images,
)
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


def test_noise_that_all_networks_share_is_left_out() -> None:
    found = effect([0.1, 0.1], shared=0.02)
    assert found.error == pytest.approx(0.02)
    assert seed_error(found) == 0


def test_seed_noise_stays() -> None:
    found = effect([0.1, 0.3])
    assert seed_error(found) == pytest.approx(found.error) == pytest.approx(0.1)  # √(.02 / 2)


def test_the_image_noise_of_each_network_is_left_out_too() -> None:
    """Seeds .1 and .3 have a variance of .02, half of it in the mean; the networks' own noise ± .05 is ¼ of that."""
    found = effect([0.1, 0.3], own=0.05)
    assert own_noise(found) == pytest.approx(0.05**2)
    assert seed_error(found) == pytest.approx(np.sqrt(0.1**2 - 0.05**2))
    assert half_by_seeds(found) < found.high - found.value


def test_what_would_be_settled() -> None:
    """Image noise .02 about .03: the interval includes 0, and without image noise it does not."""
    near = effect([0.03, 0.03], shared=0.02)
    assert near.low < 0
    assert is_settled_by_seeds(CLAIM, [near])
    assert is_settled_by_seeds(CLAIM, [near * -1.0])
    assert not is_settled_by_seeds(CLAIM, [near, effect([0.03, 0.2])])
    one = Effect.of({0: 0.03}, {0: 0.001 * WAVE}, "alpha", 2000) - effect([0.0, 0.0])
    assert not is_settled_by_seeds(CLAIM, [one])


def networks(subject: str, metric: str, few: list[float], many: list[float]) -> tuple[Results, Results]:
    """A network of vanilla for each value; the first ones were measured with many images too. And one of α."""
    place = ("corrupted", 0, subject, metric)
    made = [row("vanilla", *place, value=one, seed=n, error=0.005) for n, one in enumerate(few)]
    again = [replace(one, value=value, error=0.002) for one, value in zip(made, many, strict=False)]
    alpha = row("alpha", *place, value=0.5)
    other = replace(alpha, value=0.53)
    unknown = replace(alpha, weights="not published", value=0.9)
    return Results.without_resamples([*made, alpha]), Results.without_resamples([*again, other, unknown])


def test_the_mean_change_of_the_networks_that_have_both_is_added_to_the_seed_mean() -> None:
    """Changes of 2 and 0 points in vanilla and 3 in α: 5/3 in the mean. α has one seed and no line."""
    few, many = networks("u", "auroc", [0.70, 0.72, 0.74], [0.72, 0.72])
    _, _, *lines = images_scores(few, many).splitlines()
    assert lines == ["| vanilla | u | 3 | 72.0 | +1.0 | +0.0 to +3.0 | 73.7 | 0.50 | 0.20 |"]


def test_calibration_errors_are_no_percents() -> None:
    few, many = networks("temperature", "ece", [0.10, 0.12], [0.09])
    _, _, *lines = images_calibration(few, many).splitlines()
    assert lines == [
        "| vanilla | temperature | 2 | 0.1100 | −0.0100 | −0.0100 to +0.0300 | 0.1200 | 0.00500 | 0.00200 |"
    ]


def test_what_is_published_of_more_images() -> None:
    kept = [row("alpha", "corrupted", subject="u"), row("alpha", "corrupted", subject="none", metric="ece")]
    others = [row("alpha", "svhn"), row("alpha", "corrupted", severity=1), row("alpha", "corrupted", subject="knn")]
    found = take_images(Results.without_resamples([*kept, *others]))
    assert found.rows == kept
