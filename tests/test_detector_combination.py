"""The combination of style and concept: logarithms of p-values that go on where ranks end."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from shiftprism.detector._decision import Decision, LogRanks, Plain
from shiftprism.scores import GTwoSided


def draw(count: int, seed: int = 0) -> torch.Tensor:
    """Scores whose p-value is known: P(S ≤ s) = exp(s / 2)."""
    return torch.from_numpy(-np.random.default_rng(seed).exponential(2.0, count)).float()


def test_an_exponential_tail_is_continued_as_it_is() -> None:
    values = draw(20_000)
    scores = torch.linspace(-200, -0.1, 500)
    assert float(values.min()) > -30  # most of the scores lie where no rank reaches
    torch.testing.assert_close(LogRanks(values)(scores), scores / 2, rtol=0.05, atol=0.03)


def test_its_rate_is_the_maximum_likelihood_estimate() -> None:
    values = draw(400, seed=1)
    ranks = LogRanks(values)
    threshold, lowest = values.sort().values[39], values.sort().values[:40]
    scale = stats.expon.fit((threshold - lowest).double().numpy(), floc=0)[1]
    below = ranks(torch.stack([threshold - 5, threshold - 6]))
    assert float(below[0] - below[1]) == pytest.approx(1 / scale, rel=1e-4)
    assert float(ranks(threshold[None])) == pytest.approx(math.log(41 / 401), rel=1e-5)


@pytest.mark.parametrize("count", [17, 60, 1000])
def test_order_is_kept_below_the_highest_value(count: int) -> None:
    values = torch.from_numpy(np.random.default_rng(count).standard_t(3, count)).float()
    scores = torch.linspace(float(values.min()) - 50, float(values.max()), 3000)
    logs = LogRanks(values)(scores)
    assert bool((logs.diff() > 0).all())
    assert float(logs[-1]) == pytest.approx(0, abs=1e-6)
    # above the tail it is the rank, to a step of the ranks or of the 128 quantiles
    ordered = values.sort().values.numpy()
    inside = scores.numpy() >= ordered[max(10, count // 10) - 1]
    ranks = np.searchsorted(ordered, scores.numpy()[inside], side="right")
    np.testing.assert_allclose(logs.exp()[inside], (1 + ranks) / (count + 1), atol=1 / (count + 1) + 1 / 100)


@pytest.mark.parametrize("values", [torch.ones(40), torch.cat([torch.zeros(30), torch.ones(10)])])
def test_ties_and_infinities_are_no_trouble(values: torch.Tensor) -> None:
    ranks = LogRanks(values)
    logs = ranks(torch.tensor([-math.inf, -5.0, 0.0, 1.0, 2.0, math.inf]))
    assert not bool(logs.isnan().any())
    assert bool((logs.diff() >= 0).all())
    assert float(logs[1]) < float(logs[2])
    assert logs[-3:].tolist() == [0, 0, 0]


def make_decision(style: torch.Tensor, concept: torch.Tensor) -> Decision:
    return Decision(GTwoSided({"norms": torch.ones(1)}), Plain("msp"), None, (style, concept), 2)


def test_a_far_outlier_in_style_is_unusual_whatever_the_concept() -> None:
    """The fault that this mends: among 60 images, ranks alone cannot say how unusual a style is beyond 1/61."""
    concept = draw(60, seed=3)
    decision = make_decision(draw(60, seed=2), concept)
    held = decision.combine(draw(2000, seed=4), draw(2000, seed=5))
    far = decision.combine(torch.tensor([-150.0, 0.0]), torch.stack([concept.max(), torch.tensor(-150.0)]))
    assert bool((far < held.min()).all())


def test_the_combination_in_closed_form() -> None:
    """For scores whose p-value is known: ln p = s / 2 for both."""
    decision = make_decision(draw(20_000, seed=6), draw(20_000, seed=7))
    style, concept = torch.meshgrid(torch.tensor([-40.0, -9, -3, -1]), torch.tensor([-40.0, -9, -3, -1]), indexing="ij")
    expected = style.flatten() / 2 + concept.flatten() / 2
    found = decision.combine(style.flatten(), concept.flatten())
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.03)
    # each part moves it, and the right way
    assert bool((found.reshape(4, 4).diff(dim=0) > 0).all())
    assert bool((found.reshape(4, 4).diff(dim=1) > 0).all())
