"""Calibration errors: by hand, by their definitions, and by the laws they obey."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from shiftprism.metrics import (
    ReliabilitySums,
    adaptive_ece,
    brier_decomposition,
    classwise_ece,
    debiased_ece,
    ece,
    reliability,
    smooth_ece,
)

ERRORS: dict[str, Callable[..., float]] = {
    "ece": ece,
    "adaptive": adaptive_ece,
    "classwise": classwise_ece,
    "debiased": debiased_ece,
    "smooth": smooth_ece,
}


def two(confidences: Any, correct: Any) -> tuple[Any, Any]:
    """Two-class probabilities with these confidences (≥ 1/2) in class 0, and labels that make them right or wrong."""
    confidences = np.asarray(confidences, dtype=float)
    return np.stack([confidences, 1 - confidences], 1), 1 - np.asarray(correct, dtype=int)


def draw_problem(samples: int, gap: float = 0.0, seed: int = 0, classes: int = 4) -> tuple[Any, Any]:
    """Random probabilities, and labels drawn from them; with `gap`, from (1 − gap) · p + gap · uniform."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.5), samples)
    truth = (1 - gap) * probabilities + gap / classes
    return probabilities, (truth.cumsum(1) < rng.random((samples, 1))).sum(1)


@pytest.mark.parametrize(
    ("confidences", "correct", "expected"),
    [
        ([1.0, 1.0, 1.0, 1.0], [1, 1, 1, 0], 0.25),  # exactly 1.0 is in the last bin
        ([0.9, 0.9], [1, 0], 0.4),
        ([0.95, 0.65, 0.65, 0.55], [1, 1, 0, 0], (0.05 + 2 * 0.15 + 0.55) / 4),
        ([0.5] * 4, [1, 1, 0, 0], 0.0),
    ],
)
def test_ece_by_hand(confidences: list[float], correct: list[int], expected: float) -> None:
    assert ece(*two(confidences, correct), bins=10) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("measure", [ece, adaptive_ece, classwise_ece, debiased_ece, brier_decomposition, reliability])
def test_there_are_fifteen_bins_unless_asked_for_others(measure: Callable[..., Any]) -> None:
    """As published tables have it since Guo et al. 2017."""
    problem = draw_problem(400, gap=0.1)
    found = [measure(*problem, **bins) for bins in ({}, {"bins": 15}, {"bins": 30})]
    usual, same, more = (np.hstack(one if isinstance(one, tuple) else [one]) for one in found)
    np.testing.assert_array_equal(usual, same)
    assert not np.array_equal(usual, more)


def test_a_confidence_on_an_edge_is_in_the_lower_bin() -> None:
    # .6 = 9/15 closes the bin (8/15, 9/15]; .61 opens the next. Together they would cancel, apart they cannot.
    probabilities, labels = two([0.6, 0.61], [0, 1])
    assert reliability(probabilities, labels).count.nonzero()[0].tolist() == [8, 9]
    assert ece(probabilities, labels) == pytest.approx((0.6 + 0.39) / 2)
    assert ece(probabilities, labels, bins=2) == pytest.approx(abs(1 - 1.21) / 2)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 20, 49, 100])
def test_every_edge_closes_its_bin(bins: int) -> None:
    edges = np.arange(1, bins + 1) / bins
    edges = edges[edges >= 0.5]
    counts = reliability(*two(edges, np.ones(len(edges))), bins=bins).count
    assert counts.tolist() == [0] * (bins - len(edges)) + [1] * len(edges)


def test_the_first_bin_takes_zero() -> None:
    # only a class-wise bin can hold a probability of 0: p = (0, 1) is right both times
    assert classwise_ece([[0, 1], [0, 1]], [1, 1]) == 0
    assert classwise_ece([[0, 1], [0, 1]], [0, 1]) == 0.5


def test_reliability_is_what_a_diagram_draws() -> None:
    edges, count, confidence, accuracy = reliability(*two([0.9, 0.8, 1.0], [1, 0, 1]), bins=5)
    assert edges.tolist() == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert count.tolist() == [0, 0, 0, 1, 2]
    assert np.isnan(confidence[:3]).all()
    assert np.isnan(accuracy[:3]).all()
    assert confidence[3:] == pytest.approx([0.8, 0.95])
    assert accuracy[3:].tolist() == [0, 1]


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_sums_merge_to_the_whole(parts: int) -> None:
    probabilities, labels = draw_problem(1000, gap=0.3)
    pieces = zip(np.array_split(probabilities, parts), np.array_split(labels, parts), strict=True)
    first, *rest = [ReliabilitySums.of(p, y) for p, y in pieces]
    merged = sum(rest, first).reliability()
    whole = reliability(probabilities, labels)
    for ours, theirs in zip(merged, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert merged.ece == pytest.approx(ece(probabilities, labels), abs=1e-14)


def test_sums_over_other_bins_are_refused() -> None:
    data = two([0.9], [1])
    with pytest.raises(ValueError, match="Expected `other` to be sums over the same bins but got 15 beside 10 bins"):
        ReliabilitySums.of(*data) + ReliabilitySums.of(*data, bins=10)


def test_adaptive_bins_hold_equal_counts() -> None:
    # sorted .55 .6 | .7 .8: gaps (.55 + .6 − 1) and (.7 + .8 − 2)
    assert adaptive_ece(*two([0.8, 0.55, 0.7, 0.6], [1, 0, 1, 1]), bins=2) == pytest.approx((0.15 + 0.5) / 4)
    # more bins than samples: every sample by itself
    assert adaptive_ece(*two([0.8, 0.6], [1, 0]), bins=15) == pytest.approx((0.2 + 0.6) / 2)
    # a tie over several bins is one confidence with one accuracy
    assert adaptive_ece(*two([0.75] * 8, [1, 1, 1, 1, 1, 1, 0, 0]), bins=4) == pytest.approx(0)


def test_classwise_is_the_mean_of_each_class() -> None:
    probabilities, labels = draw_problem(500, gap=0.2)
    total = 0.0
    for k in range(4):
        p, y = probabilities[:, k], labels == k
        for b in range(15):
            inside = (p > b / 15) & (p <= (b + 1) / 15)
            total += abs(p[inside].sum() - y[inside].sum()) / 500
    assert classwise_ece(probabilities, labels) == pytest.approx(total / 4)


def test_debiased_by_hand() -> None:
    # the bin of .9: accuracy 1/2, so (.4² − .25 / 3); the single .6 has no variance and counts 0
    expected = 4 / 5 * (0.4**2 - 0.25 / 3)
    assert debiased_ece(*two([0.9] * 4 + [0.6], [1, 1, 0, 0, 0])) == pytest.approx(expected)


def test_debiased_is_right_on_average_where_the_plain_square_is_not() -> None:
    rng = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(2000):  # confidence .8, accuracy .7 in truth: the square is .01
        probabilities, labels = two([0.8] * 20, rng.random(20) < 0.7)
        plain.append(ece(probabilities, labels) ** 2)
        debiased.append(debiased_ece(probabilities, labels))
    error = np.std(debiased) / 2000**0.5
    assert np.mean(debiased) == pytest.approx(0.01, abs=4 * error)
    assert np.mean(plain) > 0.01 + 10 * error


def direct_smooth_ece(confidence: Any, correct: Any) -> float:
    """The definition itself: the kernels of every sample and its images on a fine grid, the fixed point by halving."""
    t = (np.arange(4000) + 0.5) / 4000

    def integral(width: float) -> float:
        total = np.zeros_like(t)
        for c, y in zip(confidence, correct, strict=True):
            images = [2 * k + sign * c for k in range(-3, 4) for sign in (1, -1)]
            total += (y - c) * sum(norm.pdf(t, image, width) for image in images)
        return float(np.abs(total).mean() / len(confidence))

    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if integral(middle) > middle else (low, middle)
    return high


@pytest.mark.parametrize("seed", range(3))
def test_smooth_ece_is_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = np.r_[rng.uniform(0.5, 1, 15), 1.0]
    correct = rng.random(16) < confidence - 0.1 * seed
    assert smooth_ece(*two(confidence, correct)) == pytest.approx(direct_smooth_ece(confidence, correct), abs=1e-5)


@pytest.mark.parametrize("confidence", [0.5, 0.7, 0.98, 1.0])
def test_smooth_ece_of_one_confidence_is_the_gap(confidence: float) -> None:
    assert smooth_ece(*two([confidence] * 4, [1, 0, 0, 1])) == pytest.approx(confidence - 0.5, abs=1e-9)


def test_smooth_ece_is_continuous_where_ece_jumps() -> None:
    near = [two([0.6 + step, 0.6 + 2 * step, 0.6], [0, 1, 1]) for step in (-1e-6, 1e-6)]
    assert abs(ece(*near[0], bins=10) - ece(*near[1], bins=10)) > 0.1
    assert abs(smooth_ece(*near[0]) - smooth_ece(*near[1])) < 1e-4


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_calibrated_model_is_near_zero_and_a_biased_one_is_not(error: Callable[..., float]) -> None:
    good, bad = error(*draw_problem(20_000)), error(*draw_problem(20_000, gap=0.5))
    assert abs(good) < 0.015
    assert bad > 5 * abs(good)


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), samples=st.integers(1, 40))
def test_the_order_of_samples_and_classes_does_not_matter(error: Callable[..., float], seed: int, samples: int) -> None:
    probabilities, labels = draw_problem(samples, 0.3, seed)
    probabilities = np.round(probabilities * 4) / 4 if seed % 2 else probabilities  # ties of confidence
    probabilities[:, 0] += 1 - probabilities.sum(1)
    probabilities = np.where(probabilities.min(1, keepdims=True) < 0, np.eye(4)[0], probabilities)
    before = error(probabilities, labels)
    order = np.random.default_rng(seed).permutation(samples)
    assert error(probabilities[order], labels[order]) == pytest.approx(before, abs=1e-9)
    # of equally probable classes the first is predicted, so classes are exchanged only where none are equal
    if not seed % 2:
        assert error(probabilities[:, ::-1], 3 - labels) == pytest.approx(before, abs=1e-9)
