"""Proper scores and accuracy, intervals, and what every metric refuses."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

import shiftprism.metrics as metrics
from shiftprism.metrics import (
    accuracy,
    auroc,
    brier,
    brier_decomposition,
    ece,
    fpr_at_tpr,
    interval,
    nll,
)

OF_PROBABILITIES: dict[str, Callable[..., Any]] = {
    name: getattr(metrics, name)
    for name in (
        "accuracy",
        "adaptive_ece",
        "brier",
        "brier_decomposition",
        "classwise_ece",
        "debiased_ece",
        "ece",
        "nll",
        "reliability",
        "sample_scores",
        "smooth_ece",
    )
}
OF_BINS = ("adaptive_ece", "brier_decomposition", "classwise_ece", "debiased_ece", "ece", "reliability")
OF_SCORES: dict[str, Callable[..., Any]] = {
    name: getattr(metrics, name) for name in ("auroc", "aupr", "tnr_at_tpr", "fpr_at_tpr")
}
nan, inf = float("nan"), float("inf")


@pytest.fixture(params=[2, 3, 10])
def data(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    rng = np.random.default_rng(request.param)
    return rng.dirichlet(np.ones(request.param), 300), rng.integers(0, request.param, 300)


def test_agrees_with_scikit_learn(data: tuple[Any, Any]) -> None:
    probabilities, labels = data
    classes = list(range(probabilities.shape[1]))
    assert nll(*data) == pytest.approx(log_loss(labels, probabilities, labels=classes), rel=1e-12)
    assert accuracy(*data) == accuracy_score(labels, probabilities.argmax(1))
    theirs = brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False)
    assert brier(*data) == pytest.approx(theirs, rel=1e-12)


def test_brier_of_two_classes_is_twice_the_binary_one() -> None:
    p, y = np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])
    assert brier(np.stack([1 - p, p], 1), y) == pytest.approx(2 * brier_score_loss(y, p))


def test_brier_reaches_its_bounds() -> None:
    assert brier([[1, 0, 0]], [0]) == 0
    assert brier([[1, 0, 0]], [1]) == 2


def test_nll_of_a_zero_is_large_and_finite() -> None:
    assert nll([[1, 0]], [1]) == pytest.approx(-np.log(np.finfo(float).tiny))
    assert nll([[1, 0]], [0]) == 0


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_brier_terms_add_up(data: tuple[Any, Any], bins: int) -> None:
    parts = brier_decomposition(*data, bins=bins)
    assert parts.reliability - parts.resolution + parts.uncertainty + parts.within == pytest.approx(brier(*data))
    assert min(parts[:3]) >= 0


def test_brier_terms_by_hand() -> None:
    # two forecasts, .8 and .4 for class 1, each constant in its bin: right 1 of 2 and 0 of 2 times; base rate 1/4
    p = np.array([0.8, 0.8, 0.4, 0.4])
    parts = brier_decomposition(np.stack([1 - p, p], 1), [1, 0, 0, 0], bins=10)
    assert parts.reliability == pytest.approx(2 * (0.3**2 + 0.4**2) / 2)
    assert parts.resolution == pytest.approx(2 * (0.25**2 + 0.25**2) / 2)
    assert parts.uncertainty == pytest.approx(2 * 0.25 * 0.75)
    assert parts.within == pytest.approx(0)


def test_sample_scores_average_to_the_metrics(data: tuple[Any, Any]) -> None:
    scores = metrics.sample_scores(*data)
    assert scores.correct.mean() == accuracy(*data)
    assert scores.log_loss.mean() == pytest.approx(nll(*data), rel=1e-12)
    assert scores.squared_error.mean() == pytest.approx(brier(*data), rel=1e-12)
    numbers = metrics.bin_numbers(scores.confidence, 15)
    assert np.bincount(numbers, minlength=15).tolist() == metrics.reliability(*data).count.tolist()
    gaps = np.bincount(numbers, scores.confidence - scores.correct)
    assert np.abs(gaps).sum() / 300 == pytest.approx(ece(*data), rel=1e-12)


def flatten(result: Any) -> Any:
    """A float, or the fields of a tuple one after the other."""
    return result if type(result) is float else np.concatenate([np.ravel(field) for field in result])


@pytest.mark.parametrize("name", OF_PROBABILITIES)
def test_lists_arrays_and_tensors_give_the_same(name: str) -> None:
    metric = OF_PROBABILITIES[name]
    rows, labels = [[0.5, 0.25, 0.25], [0.125, 0.125, 0.75], [0.0, 1.0, 0.0]], [0, 1, 1]
    expected = flatten(metric(rows, labels))
    for p in (np.array(rows, np.float32), torch.tensor(rows, requires_grad=True), torch.tensor(rows).bfloat16()):
        for y in (np.array(labels, np.uint8), torch.tensor(labels)):
            np.testing.assert_allclose(flatten(metric(p, y)), expected)


@pytest.mark.parametrize("name", OF_SCORES)
def test_scores_come_as_anything(name: str) -> None:
    metric = OF_SCORES[name]
    expected = metric([3, 2, 2], [1, 2])
    assert type(expected) is float
    assert metric(torch.tensor([3.0, 2.0, 2.0], requires_grad=True), np.array([1, 2], np.int8)) == expected


def test_half_precision_softmax_passes() -> None:
    logits = torch.randn(200, 100, generator=torch.Generator().manual_seed(0))
    assert ece(logits.softmax(1).half(), torch.zeros(200, dtype=torch.long)) > 0


# ------------------------------------------------------------------------------------------------------ intervals


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    truth = norm.cdf(1 / 2**0.5)  # AUROC of N(1, 1) against N(0, 1)
    rng = np.random.default_rng(1)
    runs = [interval(auroc, rng.normal(1, 1, 80), rng.normal(0, 1, 120), resamples=200, level=0.9) for _ in range(100)]
    covered = np.mean([low <= truth <= high for _, low, high in runs])
    assert 0.8 <= covered <= 0.98  # 90 ± 3 standard errors, and a little for the percentile method


def test_interval_of_pairs_is_the_normal_one_for_a_mean() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(2000) < 0.3).astype(int)
    probabilities = np.tile([0.6, 0.4], (2000, 1))
    value, low, high = interval(accuracy, probabilities, labels, paired=True)
    half = norm.ppf(0.975) * (value * (1 - value) / 2000) ** 0.5
    assert value == accuracy(probabilities, labels)
    assert (low, high) == pytest.approx((value - half, value + half), abs=0.1 * half)


def test_an_interval_of_more_rows_than_are_resampled_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One resample of 18 rows at a time is then the least."""
    monkeypatch.setattr("shiftprism.metrics._interval._INDICES_AT_ONCE", 7)
    value, low, high = interval(auroc, np.arange(2.0, 12), np.arange(8.0), resamples=50)
    assert low < value < high


def test_interval_follows_its_seed_and_level() -> None:
    rng = np.random.default_rng(0)
    id, ood = rng.normal(1, 1, 60), rng.normal(0, 1, 50)
    first = interval(auroc, id, ood, resamples=100)
    assert interval(auroc, torch.tensor(id), list(ood), resamples=100) == first
    assert interval(auroc, id, ood, resamples=100, seed=1)[1:] != first[1:]
    narrow = interval(auroc, id, ood, resamples=100, level=0.5)
    assert first.low < narrow.low < narrow.high < first.high


def test_interval_resamples_pairs_together() -> None:
    # rows that always fit their label: any mixing of rows and labels would show
    labels = np.arange(50) % 5
    assert interval(accuracy, np.eye(5)[labels], labels, paired=True, resamples=50) == (1, 1, 1)


def test_interval_does_not_hold_all_resamples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftprism.metrics._interval._INDICES_AT_ONCE", 20_000)
    id, ood = np.arange(6000.0), np.arange(4000.0) - 500
    interval(auroc, id, ood, resamples=2)  # imports and caches, which are not counted
    tracemalloc.start()
    interval(auroc, id, ood, resamples=200)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 * 10_000 * 8 / 4  # all positions at once are 16 MB


# --------------------------------------------------------------------------------------------------- what is refused

GOOD = [[0.5, 0.5], [0.25, 0.75]]


@pytest.mark.parametrize("name", OF_PROBABILITIES)
@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[nan, 0.5], [0.5, 0.5]], [0, 1], "`probabilities` to be finite but got 1 NaN"),
        ([[0.5, 0.5], [inf, 0.5]], [0, 1], "`probabilities` to be finite .* row 1"),
        ([0.5, 0.5], [0, 1], r"`probabilities` to be of shape \(N, K\) but got shape \(2,\)"),
        (np.zeros((0, 2)), [], "`probabilities` to be non-empty"),
        ([[0.5, 0.5], [0.5, 0.4]], [0, 1], r"`probabilities` .* got a sum of 0.9 in row 1; pass softmax\(logits\)"),
        ([[0.5, 0.5], [2.0, -1.0]], [0, 1], r"`probabilities` to be at least 0 but got -1 in row 1; pass softmax"),
        ([["a", "b"]], [0], "`probabilities` to be numeric"),
        (GOOD, [0, 2], "`labels` to be between 0 and 1 but got values from 0 to 2"),
        (GOOD, [-1, 0], "`labels` to be between 0 and 1 but got values from -1 to 0"),
        (GOOD, [0], r"`labels` to be of shape \(2,\) but got shape \(1,\)"),
        (GOOD, [0.0, 1.0], "`labels` to be whole class numbers but got dtype float64"),
    ],
)
def test_bad_probabilities_and_labels(name: str, probabilities: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {message}"):
        OF_PROBABILITIES[name](probabilities, labels)


@pytest.mark.parametrize("name", OF_BINS)
@pytest.mark.parametrize("bins", [0, -3, 2.5, True])
def test_bad_bins(name: str, bins: Any) -> None:
    with pytest.raises(ValueError, match=f"Expected `bins` to be a positive whole number but got {bins!r}"):
        OF_PROBABILITIES[name](GOOD, [0, 1], bins=bins)


@pytest.mark.parametrize("name", OF_SCORES)
@pytest.mark.parametrize(
    ("id", "ood", "message"),
    [
        ([1, nan], [0], "`id` to be finite"),
        ([1], [0, -inf], "`ood` to be finite"),
        ([], [0], "`id` to be non-empty"),
        ([1], [], "`ood` to be non-empty"),
        ([[1]], [0], r"`id` to be one-dimensional but got shape \(1, 1\)"),
        ([1], 0, r"`ood` to be one-dimensional but got shape \(\)"),
    ],
)
def test_bad_scores(name: str, id: Any, ood: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {message}"):
        OF_SCORES[name](id, ood)


@pytest.mark.parametrize("name", ["aupr", "fpr_at_tpr"])
def test_unknown_positive(name: str) -> None:
    with pytest.raises(ValueError, match="Expected `positive` to be one of id, ood but got 'in'"):
        OF_SCORES[name]([1], [0], positive="in")


@pytest.mark.parametrize("tpr", [0, -0.1, 95, nan])
def test_bad_tpr(tpr: float) -> None:
    with pytest.raises(ValueError, match=r"Expected `tpr` to be in \(0, 1\] but got"):
        fpr_at_tpr([1], [0], tpr=tpr)


@pytest.mark.parametrize(
    ("confidences", "correct", "message"),
    [
        ([nan], [1], "`confidences` to be finite"),
        ([1, 2], [1], r"`correct` to be of shape \(2,\) but got shape \(1,\)"),
        ([1, 2], [0, 3], "`correct` to be 0 or 1 but got values from 0 to 3"),
    ],
)
def test_bad_aurc(confidences: Any, correct: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {message}"):
        metrics.aurc(confidences, correct)


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ([], {}, "`samples` to be at least one array but got none"),
        ([[1, 2], [1]], {}, r"`samples\[1\]` to be at least two rows but got shape \(1,\)"),
        (
            [[1, 2], [1, 2, 3]],
            {"paired": True},
            r"`samples` to be of equal length when paired but got lengths \[2, 3\]",
        ),
        ([[1, 2], [1, 2]], {"level": 95}, r"`level` to be in \(0, 1\) but got 95"),
        ([[1, 2], [1, 2]], {"resamples": 0}, "`resamples` to be at least 1 but got 0"),
    ],
)
def test_bad_intervals(samples: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {message}"):
        interval(auroc, *samples, **options)


def test_metrics_need_no_torch() -> None:
    code = "import sys, shiftprism.metrics as m; m.ece([[.5, .5]], [0]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
