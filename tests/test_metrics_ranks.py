"""Metrics of order: against scikit-learn, by hand, and by the laws they obey."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from shiftprism.metrics import aupr, aurc, auroc, fpr_at_tpr, tnr_at_tpr

RANKS: dict[str, Callable[[Any, Any], float]] = {
    "auroc": auroc,
    "aupr, id": aupr,
    "aupr, ood": lambda id, ood: aupr(id, ood, positive="ood"),
    "tnr": tnr_at_tpr,
    "fpr, id": fpr_at_tpr,
    "fpr, ood": lambda id, ood: fpr_at_tpr(id, ood, positive="ood"),
    "fpr at 1/3": lambda id, ood: fpr_at_tpr(id, ood, tpr=1 / 3),
}
# few distinct values, so that ties are the rule
scores = st.lists(st.integers(-4, 4), min_size=1, max_size=30)
unhurried = settings(deadline=None)


def both(id: Any, ood: Any) -> tuple[Any, Any]:
    return np.r_[np.ones(len(id)), np.zeros(len(ood))], np.r_[id, ood]


@unhurried
@given(scores, scores)
def test_agrees_with_scikit_learn(id: list[int], ood: list[int]) -> None:
    label, score = both(id, ood)
    assert auroc(id, ood) == pytest.approx(roc_auc_score(label, score), abs=1e-12)
    assert aupr(id, ood) == pytest.approx(average_precision_score(label, score), abs=1e-12)
    assert aupr(id, ood, "ood") == pytest.approx(average_precision_score(1 - label, -score), abs=1e-12)


@unhurried
@given(scores, scores, st.integers(1, 100))
def test_fpr_is_the_first_point_of_the_roc_curve_with_enough_tpr(id: list[int], ood: list[int], percent: int) -> None:
    label, score = both(id, ood)
    for positive, truth, sign in (("id", label, 1), ("ood", 1 - label, -1)):
        # by default roc_curve leaves out points on straight pieces, and the first one left may lie too far right
        fpr, tpr, _ = roc_curve(truth, sign * score, drop_intermediate=False)
        first = int(np.argmax(tpr >= percent / 100 - 1e-9))
        found = fpr_at_tpr(id, ood, percent / 100, positive)  # type: ignore[arg-type]
        assert found == pytest.approx(fpr[first], abs=1e-12)


@pytest.mark.parametrize("metric", RANKS.values(), ids=RANKS)
@unhurried
@given(id=scores, ood=scores, steps=st.lists(st.floats(1e-3, 1e3), min_size=9, max_size=9))
def test_increasing_maps_change_nothing(metric: Any, id: list[int], ood: list[int], steps: list[float]) -> None:
    curve = np.cumsum(steps) - 500
    mapped = metric(curve[np.array(id) + 4], curve[np.array(ood) + 4])
    assert mapped == metric(id, ood)


@unhurried
@given(scores, scores)
def test_changing_sides(id: list[int], ood: list[int]) -> None:
    negated = [-s for s in ood], [-s for s in id]
    assert auroc(id, ood) == pytest.approx(1 - auroc(ood, id), abs=1e-12)
    assert auroc(id, ood) == auroc(*negated)
    assert aupr(id, ood, "ood") == aupr(*negated)
    assert fpr_at_tpr(id, ood, positive="ood") == fpr_at_tpr(*negated)
    assert tnr_at_tpr(id, ood) == 1 - fpr_at_tpr(id, ood)


def test_constant_scores_tell_nothing() -> None:
    id, ood = [0.3] * 30, [0.3] * 10
    assert auroc(id, ood) == 0.5
    assert (aupr(id, ood), aupr(id, ood, "ood")) == (0.75, 0.25)  # the share of the positive class
    assert tnr_at_tpr(id, ood) == 0
    assert fpr_at_tpr(id, ood) == fpr_at_tpr(id, ood, positive="ood") == 1


def test_perfect_scores() -> None:
    id, ood = [3, 4], [1, 2]
    assert [metric(id, ood) for metric in RANKS.values()] == [1, 1, 1, 1, 0, 0, 0]


def test_threshold_by_hand() -> None:
    # 95 % of 20 is 19 samples, and exactly 19 score 1 or more; of a tie with the threshold all are accepted
    assert tnr_at_tpr(np.arange(20), [0, 0.5, 1, 1.5]) == 0.5
    # 95 % of 10 is 9.5, so all ten are needed
    assert tnr_at_tpr(np.arange(10), [-1, 0, 0, 5]) == 0.25
    # a tie at the bottom of ID cannot be split: taking 19 of them takes all 20
    assert tnr_at_tpr([1, 1, *range(2, 20)], [0, 1]) == 0.5


@pytest.mark.parametrize("percent", range(1, 101))
def test_no_sample_is_lost_to_floating_point(percent: int) -> None:
    for n in (1, 7, 20, 99, 100, 1000):
        needed = math.ceil(percent * n / 100) if percent * n % 100 else percent * n // 100
        # with ID scores 1 … n and the same OOD, t is n − needed + 1 and `needed` of OOD are accepted
        ranks = np.arange(1, n + 1)
        assert fpr_at_tpr(ranks, ranks, tpr=percent / 100) == needed / n


def test_the_two_conventions_differ_on_the_same_scores() -> None:
    # ID narrow, OOD wide: the quantiles of N(1.5, 1) and N(0, 2)
    from scipy.stats import norm

    grid = (np.arange(10_000) + 0.5) / 10_000
    id, ood = norm.ppf(grid, 1.5, 1), norm.ppf(grid, 0, 2)
    assert fpr_at_tpr(id, ood) == pytest.approx(norm.sf(1.5 + norm.ppf(0.05), 0, 2), abs=1e-3)
    assert fpr_at_tpr(id, ood, positive="ood") == pytest.approx(norm.cdf(2 * norm.ppf(0.95), 1.5, 1), abs=1e-3)
    assert round(fpr_at_tpr(id, ood), 2) == 0.53
    assert round(fpr_at_tpr(id, ood, positive="ood"), 2) == 0.96


def test_large_numbers_of_pairs_are_counted_exactly() -> None:
    id, ood = np.arange(300_000) % 1000, np.arange(200_000) % 1000
    assert auroc(id, ood) == 0.5


def test_aurc_by_hand() -> None:
    assert aurc([4, 3, 2, 1], [1, 0, 1, 1]) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert aurc([4, 3, 2, 1], [1, 1, 1, 1]) == 0
    assert aurc([1, 1, 1, 1], [True, False, True, True]) == pytest.approx(1 / 4)  # constant: the error rate
    # two tied in the middle share one error: 0, 1/2 over 2, 1 over 3, 1 over 4
    assert aurc([3, 2, 2, 1], [1, 0, 1, 1]) == pytest.approx((0 + 0.5 / 2 + 1 / 3 + 1 / 4) / 4)


@unhurried
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5))
def test_aurc_is_the_mean_over_all_orders_of_the_tied(pairs: list[tuple[int, bool]]) -> None:
    from itertools import permutations

    def of(order: tuple[tuple[int, bool], ...]) -> float:
        errors = [not right for _, right in sorted(order, key=lambda pair: -pair[0])]
        return float(np.mean(np.cumsum(errors) / np.arange(1, len(errors) + 1)))

    orders = [of(order) for order in permutations(pairs)]
    confidence, right = zip(*pairs, strict=True)
    assert aurc(confidence, right) == pytest.approx(np.mean(orders))
    assert aurc(confidence[::-1], right[::-1]) == pytest.approx(aurc(confidence, right))
