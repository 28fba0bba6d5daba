"""Ranks and bets, against plain computations: a list for the pool, isotonic regression, and the mean over all cells."""

import numpy as np
import pytest
from scipy import stats
from sklearn.isotonic import IsotonicRegression

from shiftprism.monitor import _bets as bets
from shiftprism.monitor._ranks import Floats, Integers, Pool, join_bins, uniforms


def rank_by_list(counts: Integers, bins: Integers, groups: Integers, breaks: Floats, grow: bool) -> list[float]:
    """The definition: each score among those of its group in a list."""
    pool = [(group, place) for group, row in enumerate(counts) for place, count in enumerate(row) for _ in range(count)]
    found = []
    for place, group, u in zip(bins.tolist(), groups.tolist(), breaks.tolist(), strict=True):
        own = [other for member, other in pool if member == group]
        below, equal = sum(other < place for other in own), sum(other == place for other in own)
        found.append((below + u * (equal + 1)) / (len(own) + 1))
        if grow:
            pool.append((group, place))
    return found


@pytest.mark.parametrize(("groups", "used"), [(1, 1), (3, 3), (100, 100), (100, 20), (100, 2)])
@pytest.mark.parametrize("grow", [True, False])
def test_ranks_are_those_in_a_list(groups: int, used: int, grow: bool) -> None:
    rng = np.random.default_rng(groups)
    counts = [rng.integers(3, size=(groups, 8)), rng.integers(3, size=(groups, 5))]
    counts[1][:, 0] += counts[0].sum(1) - counts[1].sum(1) + 6
    counts[0][:, 0] += 6
    bins = np.stack([rng.integers(8, size=150), rng.integers(5, size=150)])
    members, breaks = rng.integers(used, size=150), rng.random((2, 150))
    pool = Pool(counts)
    found = pool.rank(bins, members, breaks, grow)
    for axis in range(2):
        assert found[axis].tolist() == rank_by_list(counts[axis], bins[axis], members, breaks[axis], grow)
        assert pool.counts[axis].sum() == counts[axis].sum() + 150 * grow


def test_ranks_of_exchangeable_scores_are_uniform_and_independent() -> None:
    rng = np.random.default_rng(0)
    last = []
    for seed in range(2000):
        scores = rng.integers(6, size=(2, 12))  # few values: ties must be broken
        counts = [np.bincount(own[:8], minlength=6)[None] for own in scores]
        last.append(Pool(counts).rank(scores[:, 8:], np.zeros(4, np.int64), uniforms(seed, np.arange(4)), True)[0])
    p = np.array(last)
    assert min(stats.kstest(column, "uniform").pvalue for column in p.T) > 0.001
    assert np.abs(np.asarray(np.corrcoef(p.T))[np.triu_indices(4, 1)]).max() < 0.08


def test_random_numbers_belong_to_seed_number_and_axis() -> None:
    u = uniforms(3, np.arange(50_000))
    assert stats.kstest(u.ravel(), "uniform").pvalue > 0.001
    assert abs(np.asarray(np.corrcoef(u))[0, 1]) < 0.02
    assert (u >= 0).all()
    assert (u < 1).all()
    assert (uniforms(3, np.array([17, 4]))[:, 1] == u[:, 4]).all()
    assert (uniforms(4, np.arange(10)) != u[:, :10]).all()


def test_joined_bins_hold_the_same_scores() -> None:
    rng = np.random.default_rng(0)
    edges, scores = np.sort(rng.normal(size=255)), rng.normal(size=2000)
    counts = np.zeros((1000, 256), np.int64)
    np.add.at(counts, (rng.integers(1000, size=2000), np.searchsorted(edges, scores)), 1)
    few, joined = join_bins(edges, counts)
    assert joined.size <= 1 << 15
    expected = np.bincount(np.searchsorted(few, scores), minlength=len(few) + 1)
    assert joined.sum(0).tolist() == expected.tolist()


def test_learned_density_is_isotonic_regression() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(20, size=(5, bets.CELLS)).astype(float)
    widths = np.diff(bets._EDGES)
    for row, density in zip(counts, bets.fit_decreasing(counts), strict=True):
        filled = row + bets._PRIOR * widths
        target = filled / widths / filled.sum()
        fit = IsotonicRegression(increasing=False).fit(np.arange(bets.CELLS), target, sample_weight=widths)
        assert np.allclose(density, fit.predict(np.arange(bets.CELLS)))


@pytest.mark.parametrize("rate", [None, 1.0])
@pytest.mark.parametrize("n", [0, 5, 15, 16, 63, 64, 100])
def test_the_next_wealth_is_on_average_the_present_one(n: int, rate: float | None) -> None:
    """A martingale under uniform p-values, exactly; with a rate, ROW is added at the start of each row."""
    rng = np.random.default_rng(n)
    past = rng.choice(bets.CELLS, size=(2, n), p=rng.dirichlet(np.ones(bets.CELLS)))
    evidence, rest = bets.Evidence.start(), n % bets.BLOCK
    wealth = np.full(2, 1.0 if rate is None else 0.0)
    if n - rest:
        evidence, path = bets.bet(evidence, past[:, : n - rest], rate)
        wealth = np.ldexp(path.wealth[:, -1], path.exponent[:, -1])
    if rest:
        _, path = bets.bet(evidence, past[:, n - rest :], rate)
        wealth = np.ldexp(path.wealth[:, -1], path.exponent[:, -1])
    after = np.zeros(2)
    for cell, width in enumerate(np.diff(bets._EDGES)):
        new = np.concatenate([past[:, n - rest :], np.full((2, 1), cell)], axis=1)
        _, path = bets.bet(evidence, new, rate)
        after += width * np.ldexp(path.wealth[:, -1], path.exponent[:, -1])
    added = bets.ROW if rate is not None and n % bets.ROW == 0 else 0
    assert np.allclose(after, wealth + added, rtol=1e-12)


def test_wealth_beyond_floating_point() -> None:
    evidence, path = bets.bet(bets.Evidence.start(), np.zeros((2, 640), np.int64), None)
    assert (path.exponent[:, -1] > 1024).all()
    assert (np.diff(path.heights(), axis=1) > 0).all()
    assert bets.from_height(float(path.heights()[0, -1])) == 1e300
    assert np.allclose(bets.height(evidence.wealth, evidence.exponent), path.heights()[:, -1])


def test_cash_outlives_a_long_stream() -> None:
    """Bets that all lose leave Π (1 − 1/(j bits(j))) in cash: half of it after 100,000 observations."""
    worst = np.full((2, 102_400), bets.CELLS - 1)
    evidence, _ = bets.bet(bets.Evidence.start(), worst, None)
    rows = range(bets._FIRST, bets._FIRST + 102_400 // bets.ROW)
    left = np.prod([1 - 1 / (row * row.bit_length()) for row in rows])
    assert left > 0.3
    assert (np.ldexp(evidence.cash, evidence.exponent) >= left).all()


def test_the_change_is_where_the_sum_begins_to_grow() -> None:
    rng = np.random.default_rng(0)
    cells = bets.to_cells(rng.random((2, 640)))
    cells[1, 300:] = bets.to_cells(rng.random(340) ** 4)
    _, path = bets.bet(bets.Evidence.start(), cells, None)
    change = bets.find_change(bets.Evidence.start(), path, 400, 1)
    assert abs(change.tested - 300) <= 10
    assert np.allclose(change.sums, path.sums[:, change.tested - 1])
