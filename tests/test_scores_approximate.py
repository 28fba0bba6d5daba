"""Approximate neighbours: exact where all lists are searched, never nearer than the truth, saved as plain tensors."""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from shiftprism.heads import Linear
from shiftprism.outputs import Outputs
from shiftprism.scores import KNN, ApproximateKNN, find_score, load

pytest.importorskip("faiss", reason='the extra faiss is not installed: pip install "shiftprism[faiss]"')


def draw(samples: int, seed: int, width: int = 8, dtype: torch.dtype = torch.float32) -> Outputs:
    """Twenty clusters of directions."""
    centres = torch.randn(20, width, generator=torch.Generator().manual_seed(99))
    noise = torch.randn(samples, width, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return Linear(width, 3).to(dtype).outputs((3 * centres[torch.arange(samples) % 20] + noise).to(dtype))


@pytest.mark.parametrize("k", [1, 10])
def test_with_all_lists_it_is_scikit_learns_search(k: int) -> None:
    known, new = draw(2000, 1), draw(50, 2)
    score = ApproximateKNN.fit(known, k=k, lists=30, probes=30)
    unit = [one.features / one.features.norm(dim=1, keepdim=True) for one in (known, new)]
    expected = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(unit[0]).kneighbors(unit[1])[0][:, -1]
    assert score(new).numpy() == pytest.approx(-expected, abs=1e-3)
    torch.testing.assert_close(score(new), KNN.fit(known, k=k)(new), atol=1e-3, rtol=0)


def test_fewer_lists_are_never_nearer_and_mostly_right() -> None:
    known, new = draw(4000, 1), draw(500, 2)
    exact, few = KNN.fit(known, k=10)(new), ApproximateKNN.fit(known, k=10, probes=8)(new)
    assert bool((few <= exact + 1e-3).all())
    assert float((few - exact).abs().lt(1e-3).float().mean()) > 0.8
    assert ApproximateKNN.fit(known).settings == {"k": 50, "probes": 32}


def test_lists_with_fewer_than_k_rows_are_as_far_as_can_be() -> None:
    known = draw(100, 1)
    score = ApproximateKNN.fit(known, k=90, lists=20, probes=1)
    assert torch.equal(score(known), torch.full((100,), -2.0))


def test_saved_copied_and_fitted_again_it_scores_the_same(tmp_path: Path) -> None:
    known, new = draw(1000, 1), draw(40, 2)
    score = ApproximateKNN.fit(known, k=5, probes=3)
    expected = score(new)
    score.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["score.json", "weights.safetensors"]
    for again in (load(tmp_path), copy.deepcopy(score), ApproximateKNN.fit(known, k=5, probes=3)):
        assert isinstance(again, ApproximateKNN)
        assert torch.equal(again(new), expected)
    assert sorted(score.state_dict()) == ["bank", "centroids"]


def test_a_part_of_the_data_in_double_and_by_name() -> None:
    known = draw(600, 1, dtype=torch.float64)
    score = find_score("shiftprism.scores:ApproximateKNN").fit(known, bank=200, k=3)
    assert isinstance(score, ApproximateKNN)
    assert score.bank.shape == (200, 8)
    assert score(known).dtype == torch.float64
    assert np.isfinite(score(known).numpy()).all()


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = draw(100, 1)
    with pytest.raises(ValueError, match="Expected `lists` to be a whole number from 1 to 100"):
        ApproximateKNN.fit(known, lists=101)
    with pytest.raises(ValueError, match="Expected `probes` to be a positive whole number but got 0"):
        ApproximateKNN.fit(known, probes=0)
    score = ApproximateKNN.fit(known, k=1)
    with pytest.raises(ValueError, match="Expected `outputs` to be of 8 features"):
        score(draw(5, 2, width=7))
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r'pip install "shiftprism\[faiss\]"'):
        ApproximateKNN.fit(known)
