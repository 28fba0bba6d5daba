"""Sums that merge, and the intervals of a reliability diagram."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from shiftprism import metrics


@given(st.integers(0, 99), st.integers(1, 59))
def test_merged_sums_are_those_of_the_whole(seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    p, labels = rng.dirichlet(np.ones(4), 60), rng.integers(0, 4, 60)
    both = metrics.ScoringSums.of(p[:cut], labels[:cut]) + metrics.ScoringSums.of(p[cut:], labels[cut:])
    assert both.count == 60
    assert both.nll == pytest.approx(metrics.nll(p, labels))
    assert both.brier == pytest.approx(metrics.brier(p, labels))
    assert both.accuracy == pytest.approx(metrics.accuracy(p, labels))


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_are_wilsons(level: float) -> None:
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    found = metrics.reliability(p, labels)
    low, high = found.intervals(level)
    for count, share, a, b in zip(found.count, found.accuracy, low, high, strict=True):
        if count:
            witness = binomtest(round(count * share), int(count)).proportion_ci(level, "wilson")
            assert (a, b) == pytest.approx((witness.low, witness.high))
        else:
            assert np.isnan([a, b]).all()
    with pytest.raises(ValueError, match="Expected `level` to be in"):
        found.intervals(95)
