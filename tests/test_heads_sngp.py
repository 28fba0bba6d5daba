"""SNGP: its covariance, against closed forms and a Gaussian process of scikit-learn."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct
from torch import Tensor

from examples import features_of
from shiftprism.heads import HEADS, SNGP


def float32_head(ridge: float = 1.0, **settings: float) -> SNGP:
    torch.manual_seed(0)
    return SNGP(6, 4, random_features=30, std=1.0, ridge=ridge, **settings)


def float64_head(ridge: float = 1.0, **settings: float) -> SNGP:
    return float32_head(ridge, **settings).double()


def run_epoch(head: SNGP, features: Tensor, batch: int = 7) -> SNGP:
    head.train().start_epoch()
    for rows in features.split(batch):
        head.after_step(rows, torch.zeros(len(rows), dtype=torch.long))
    head.end_epoch()
    return head.eval()


def random_features(head: SNGP, features: Tensor) -> Any:
    return np.cos(features.numpy() @ head.directions.numpy().T + head.phases.numpy())


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_the_covariance_is_the_closed_form(ridge: float) -> None:
    features = features_of(100)
    head = run_epoch(float64_head(ridge), features)
    phi = random_features(head, features)
    np.testing.assert_allclose(head.covariance.numpy(), np.linalg.inv(ridge * np.eye(30) + phi.T @ phi), atol=1e-10)


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_the_variance_is_that_of_a_gaussian_process(ridge: float) -> None:
    """Of regression on the random features, with noise of variance `ridge`: scikit-learn inverts N × N, we M × M."""
    known, fresh = features_of(50), features_of(20, seed=1, scale=2.0)
    head = run_epoch(float64_head(ridge), known)
    process = GaussianProcessRegressor(DotProduct(0.0, "fixed"), alpha=ridge, optimizer=None)
    process.fit(random_features(head, known), np.zeros(50))
    _, deviation = process.predict(random_features(head, fresh), return_std=True)
    np.testing.assert_allclose(head.scales(fresh)["variance"].numpy(), deviation**2, atol=1e-10)


def test_logits_are_the_mean_field_of_the_plain_ones() -> None:
    features = features_of(50)
    head = run_epoch(float64_head(factor=3.0), features)
    phi = random_features(head, features)
    plain = phi @ head.output.detach().numpy().T
    variance = np.einsum("nm,ml,nl->n", phi, head.covariance.numpy(), phi)
    with torch.no_grad():
        outputs = head.outputs(features)
        np.testing.assert_allclose(outputs.raw.numpy(), plain)
        np.testing.assert_allclose(outputs.logits.numpy(), plain / np.sqrt(1 + 3 * variance)[:, None])
        assert torch.equal(head.train().outputs(features).logits, outputs.raw)  # training sees the plain ones


def test_only_the_last_epoch_counts_and_its_batches_do_not() -> None:
    features = features_of(100)
    expected = run_epoch(float64_head(), features).covariance
    again = run_epoch(run_epoch(float64_head(), features_of(40, seed=3)), features, batch=64)
    torch.testing.assert_close(again.covariance, expected)


def test_the_prior_holds_before_the_first_epoch() -> None:
    torch.testing.assert_close(float64_head(0.25).covariance, 4 * torch.eye(30, dtype=torch.float64))


@pytest.mark.parametrize("cast", [False, True])
def test_single_precision_keeps_the_small_directions(cast: bool) -> None:
    """Features nearly on a line, in many batches: summed in float32 the precision is not even positive definite."""
    features = 1 + 1e-3 * torch.randn(40_000, 6, generator=torch.Generator().manual_seed(0))
    head = run_epoch(float32_head().float() if cast else float32_head(), features, batch=4)
    exact = run_epoch(float64_head(), features.double(), batch=400)
    found, expected = (one.scales(features[:50].to(one.root))["variance"] for one in (head, exact))
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-6)


def test_phases_are_drawn_from_one_turn() -> None:
    """Rahimi and Recht's b ~ U[0, 2π]; with it the mean of cos(w·x + b) is 0 and that of its square 1/2, for any x."""
    torch.manual_seed(0)
    phases = SNGP(4, 3, random_features=4000).phases.double().numpy()
    assert stats.kstest(phases / (2 * np.pi), "uniform").pvalue > 0.01


def test_directions_are_orthogonal_and_as_long_as_normal_ones() -> None:
    torch.manual_seed(0)
    head = SNGP(40, 3, random_features=1000)
    blocks = head.directions.unflatten(0, (25, 40))
    gram = blocks @ blocks.mT
    torch.testing.assert_close(gram, torch.diag_embed(gram.diagonal(dim1=1, dim2=2)), rtol=0, atol=1e-6)
    lengths = head.directions.norm(dim=1) / 0.05
    assert lengths.square().mean().item() == pytest.approx(40, rel=0.05)
    assert lengths.std().item() == pytest.approx(0.5**0.5, rel=0.1)  # of a chi distribution with many degrees
    # Householder's Q has a negative first entry in every block; a direction and its opposite must be equally likely
    assert set(head.directions[::40, 0].sign().tolist()) == {-1.0, 1.0}


def test_random_features_give_the_gaussian_kernel() -> None:
    torch.manual_seed(0)
    head = SNGP(6, 3, random_features=1500, std=0.5).double()
    features = features_of(12)
    phi = random_features(head, features)
    np.testing.assert_allclose(2 * phi @ phi.T / 1500, RBF(1 / 0.5)(features.numpy()), atol=0.08)


def test_published_constants() -> None:
    head = HEADS["sngp"](8, 10)
    assert isinstance(head, SNGP)
    assert (head.output.shape, head.ridge, head.factor.item()) == ((10, 1024), 1.0, 20.0)
    assert SNGP(8, 100).factor.item() == 7.5
    assert [group["weight_decay"] for group in head.parameter_groups(0.5)] == [0]


def test_the_factor_travels_with_the_weights() -> None:
    other = float64_head()
    other.load_state_dict(float64_head(factor=3.0).state_dict())
    assert other.factor.item() == 3


@pytest.mark.parametrize("settings", [{"random_features": 0}, {"std": 0.0}, {"ridge": -1.0}, {"factor": -1.0}])
def test_impossible_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"Expected `{next(iter(settings))}` to be"):
        SNGP(6, 4, **settings)  # type: ignore[arg-type]
