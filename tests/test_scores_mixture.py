"""The Gaussian mixture against SciPy, in all forms in which it keeps a class."""

import weakref

import numpy as np
import pytest
import torch
from scipy import special, stats

from examples import draw_outputs
from shiftprism.scores import GaussianMixture
from shiftprism.scores._moments import _Spreads

LABELS = torch.arange(120) % 4


@pytest.mark.parametrize("width", [6, 40, 60, 100])
def test_mixture_against_scipy(width: int) -> None:
    """Also with fewer samples a class (30) than features, where the ridge makes the covariance regular."""
    known, new = draw_outputs(width=width), draw_outputs(30, seed=2, width=width)
    x, y = known.features.numpy(), new.features.numpy()
    score = GaussianMixture.fit(known, LABELS, ridge=1e-3)
    densities = []
    for k in range(4):
        covariance = np.cov(x[k == LABELS].T)
        ridge = 1e-3 * np.trace(covariance) / width
        assert score.ridge[k].item() == pytest.approx(ridge)
        covariance += ridge * np.eye(width)
        densities.append(stats.multivariate_normal(x[k == LABELS].mean(0), covariance).logpdf(y))
    assert score(new).numpy() == pytest.approx(special.logsumexp(densities, axis=0), rel=1e-7)


@pytest.mark.parametrize("width", [40, 100])
def test_mixture_in_float32_keeps_its_digits_where_samples_are_few(width: int) -> None:
    known, new = draw_outputs(width=width), draw_outputs(60, seed=2, width=width)
    exact = GaussianMixture.fit(known, LABELS)(new)
    single = GaussianMixture.fit(known.to(torch.float32), LABELS)(new.to(torch.float32))
    torch.testing.assert_close(single.double(), exact, rtol=2e-3, atol=1e-2)


def test_wide_features_take_the_same_path() -> None:
    """From 256 features on the products are made in blocks."""
    known = draw_outputs(1200, width=301)
    score = GaussianMixture.fit(known, torch.arange(1200) % 2, ridge=1e-3)
    x = known.features.numpy()
    expected = []
    for k in range(2):
        covariance = np.cov(x[k::2].T)
        covariance += 1e-3 * np.trace(covariance) / 301 * np.eye(301)
        expected.append(stats.multivariate_normal(x[k::2].mean(0), covariance).logpdf(x[:50]))
    values = score(known.rows(slice(0, 50))).numpy()
    assert values == pytest.approx(special.logsumexp(expected, axis=0), rel=1e-8)


@pytest.mark.parametrize("gathered", [1 << 27, 900, 0])
def test_a_fit_of_the_mixture_reads_one_class_at_a_time(gathered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives what summed statistics give, with classes of many (0), few (1) and equal (2, 3) samples.

    However many rows are gathered: all, those of two or three classes, or none.
    """
    known = draw_outputs(width=20)
    same = torch.arange(120) % 4 >= 2
    known = known._replace(features=torch.where(same[:, None], known.features[2], known.features))
    kept = (LABELS != 1) | (torch.arange(120) < 30)
    known, labels = known.rows(kept), LABELS[kept]
    first, rest = (
        GaussianMixture.statistics(known.rows(part), labels[part]) for part in (slice(0, 40), slice(40, None))
    )
    summed = GaussianMixture.from_statistics(first + rest, dtype=torch.float64)
    monkeypatch.setattr("shiftprism.scores._moments.GATHERED", gathered)
    alive: list[int] = []
    made: list[weakref.ref[torch.Tensor]] = []
    read = _Spreads.__getitem__

    def watch(spreads: _Spreads, k: int) -> torch.Tensor:
        alive.append(sum(one() is not None for one in made))
        spread = read(spreads, k)
        made.append(weakref.ref(spread))
        return spread

    monkeypatch.setattr(_Spreads, "__getitem__", watch)
    fitted = GaussianMixture.fit(known, labels)
    assert len(alive) > 4
    assert max(alive) <= 2, "while a class is read, no more than those before it of two loops are in memory"
    assert fitted.borrowed.tolist() == summed.borrowed.tolist() == [False, True, True, False]
    assert fitted.classes.tolist() == [0, 2, 3, 1]
    new = draw_outputs(30, seed=2, width=20)
    torch.testing.assert_close(fitted(new), summed(new), rtol=1e-8, atol=1e-8)
