"""The laws every calibrator keeps, and known optima for each."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from calibrators_examples import big, sample_labels
from examples import outputs_of
from shiftprism.calibrators import (
    CALIBRATORS,
    AlphaBeta,
    Calibrator,
    Dirichlet,
    ExponentialMap,
    Matrix,
    Monotone,
    Temperature,
    Vector,
    describe_calibrators,
)
from shiftprism.heads import HEADS
from shiftprism.outputs import Outputs

# shift-aware has its own file: these laws are about fits to clean data alone
NAMES = sorted(set(CALIBRATORS) - {"shift-aware"})
every_calibrator = pytest.mark.parametrize("name", NAMES)
temperature_like = [name for name, kind in sorted(CALIBRATORS.items()) if kind.includes_temperature]


@pytest.mark.parametrize(
    "same",
    [
        Temperature(1.0),
        AlphaBeta.identity(4),
        AlphaBeta.identity(6, "features"),
        Vector(torch.ones(4), torch.zeros(4)),
        Matrix(torch.eye(4), torch.zeros(4)),
        ExponentialMap(1.0, 0.0, 1.0, unchanged=True),
    ],
)
@pytest.mark.parametrize("head", sorted(HEADS))
def test_identity_parameters_change_nothing(same: Calibrator, head: str) -> None:
    outputs = outputs_of(head)
    assert torch.equal(same(outputs), outputs.logits)


@pytest.mark.parametrize("same", [Dirichlet(torch.eye(4), torch.zeros(4)), Monotone(torch.zeros(4, 3), torch.zeros(4))])
def test_identity_up_to_a_shift_of_each_row(same: Calibrator) -> None:
    outputs = outputs_of()
    torch.testing.assert_close(torch.softmax(same(outputs), 1), torch.softmax(outputs.logits, 1))


@every_calibrator
@given(
    head=st.sampled_from(sorted(HEADS)),
    seed=st.integers(0, 99),
    samples=st.integers(1, 90),
    classes=st.integers(2, 6),
    truth=st.sampled_from(["random", "right", "wrong", "one class"]),
)
def test_never_worse_than_the_model_and_predictions_kept_where_promised(
    name: str, head: str, seed: int, samples: int, classes: int, truth: str
) -> None:
    outputs = outputs_of(head, samples, 6, classes, seed)
    labels = {
        "random": torch.randint(0, classes, (samples,), generator=torch.Generator().manual_seed(seed)),
        "right": outputs.predictions,
        "wrong": outputs.logits.argmin(1),
        "one class": torch.zeros(samples, dtype=torch.long),
    }[truth]
    fitted = CALIBRATORS[name].fit(outputs, labels)
    logits = fitted(outputs)
    assert logits.isfinite().all()
    assert fitted.report.nll_after <= fitted.report.nll_before
    alone = (outputs.logits == outputs.logits.amax(1, keepdim=True)).sum(1) == 1  # a tie at the top is not right
    assert fitted.report.all_right == bool(((outputs.predictions == labels) & alone).all())
    assert nn.functional.cross_entropy(logits, labels).item() == pytest.approx(fitted.report.nll_after, abs=1e-5)
    if fitted.keeps_predictions:
        assert torch.equal(logits.gather(1, outputs.predictions[:, None]).squeeze(1), logits.amax(1))


@pytest.mark.parametrize("name", temperature_like)
@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_recovers_a_known_temperature(name: str, temperature: float) -> None:
    outputs = big(samples=20_000)
    fitted = CALIBRATORS[name].fit(outputs, sample_labels(outputs, 1 / temperature))
    fresh = sample_labels(outputs, 1 / temperature, seed=1)
    best = nn.functional.cross_entropy(outputs.logits / temperature, fresh).item()
    assert nn.functional.cross_entropy(fitted(outputs), fresh).item() == pytest.approx(best, abs=1e-3)
    if name == "temperature":
        assert fitted.get_buffer("temperature").item() == pytest.approx(temperature, rel=0.05)


@every_calibrator
def test_deterministic_and_independent_of_the_order(name: str) -> None:
    outputs = big(samples=500)
    labels = sample_labels(outputs, 0.5)
    first, second = (CALIBRATORS[name].fit(outputs, labels)(outputs) for _ in range(2))
    assert torch.equal(first, second)
    order = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    permuted = CALIBRATORS[name].fit(outputs.rows(order), labels[order])(outputs)
    torch.testing.assert_close(permuted, first, rtol=1e-3, atol=1e-3)


@every_calibrator
def test_state_round_trips_and_dtype_follows(name: str) -> None:
    outputs = big(samples=500)
    fitted = CALIBRATORS[name].fit(outputs, sample_labels(outputs, 0.5))
    assert {tensor.dtype for tensor in fitted.state_dict().values()} <= {torch.float32, torch.bool}
    assert list(fitted.parameters()) == []
    assert fitted(outputs.to(torch.float32)).dtype == torch.float32


def test_exports_with_a_dynamic_batch() -> None:
    """All in one program: the exporter's own work would take a second for each calibrator."""
    outputs = big(samples=200)
    labels = sample_labels(outputs, 0.5)

    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fitted = nn.ModuleDict({name: CALIBRATORS[name].fit(outputs, labels) for name in NAMES})

        def forward(self, outputs: Outputs) -> dict[str, Tensor]:
            return {name: fitted(outputs) for name, fitted in self.fitted.items()}

    fitted, few = All(), outputs.rows(slice(0, 3))
    shapes: Any = Outputs(*[{0: torch.export.Dim("n")}] * 6)  # type: ignore[arg-type]
    program = torch.export.export(fitted, (few,), dynamic_shapes=(shapes,))
    found = program.module()(outputs)
    assert set(found) == set(NAMES)
    torch.testing.assert_close(found, fitted(outputs))


@every_calibrator
@pytest.mark.parametrize("classes", [2, 1000])
def test_two_classes_and_a_thousand(name: str, classes: int) -> None:
    outputs = big(samples=300 if classes == 2 else 60, classes=classes)
    report = CALIBRATORS[name].fit(outputs, sample_labels(outputs, 0.5)).report
    assert report.nll_after <= report.nll_before


@every_calibrator
def test_bad_inputs_are_refused(name: str) -> None:
    outputs, fit = outputs_of(samples=20), CALIBRATORS[name].fit
    labels = torch.arange(20) % 4
    with pytest.raises(ValueError, match="Expected `labels` to be between 0 and 3 but got values from 0 to 4"):
        fit(outputs, torch.arange(20) % 5)
    with pytest.raises(ValueError, match=r"Expected `labels` to be of shape \(20,\) but got shape \(19,\)"):
        fit(outputs, labels[1:])
    with pytest.raises(ValueError, match="Expected `labels` to be whole class numbers but got dtype float32"):
        fit(outputs, labels.float())
    with pytest.raises(ValueError, match="Expected `outputs` to be non-empty"):
        fit(outputs.rows(slice(0, 0)), labels[:0])
    with pytest.raises(ValueError, match="Expected `outputs` to be an Outputs but got ndarray; say what it holds"):
        fit(np.zeros((20, 4)), labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected `labels` to be given"):
        fit(outputs)
    broken = Outputs(*(field.clone() for field in outputs))
    broken.logits[2] = math.nan
    with pytest.raises(ValueError, match=r"Expected `outputs\.(raw|logits)` to be finite"):
        fit(broken, labels)


@given(st.integers(0, 1000))
def test_temperature_is_the_optimum_scipy_finds(seed: int) -> None:
    outputs = big(samples=200, seed=seed)
    labels = sample_labels(outputs, 0.6, seed)
    fitted = Temperature.fit(outputs, labels)
    assert fitted.report.converged
    assume(not fitted.unchanged)  # where held-out folds show no gain, the model's own logits stay

    def loss(tau: float) -> float:
        return float(nn.functional.cross_entropy(outputs.logits * math.exp(-tau), labels))

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    assert fitted.report.nll_after == pytest.approx(best.fun, abs=1e-9)


def test_temperature_does_not_stop_short() -> None:
    """A start far from the optimum, where peers were seen to stop at 1.24 and 1.77 for 2.98."""
    outputs = big(factor=40, samples=20_000)
    fitted = Temperature.fit(outputs, sample_labels(outputs, 1 / 29.8))
    assert fitted.temperature.item() == pytest.approx(29.8, rel=0.05)


def test_alpha_beta_finds_what_a_temperature_cannot() -> None:
    """Labels whose true multiplier depends on |f|, as the paper's form has it: 0.2 + 1.5/|f|."""
    outputs = big(samples=6000)
    factor = (0.2 + 1.5 / outputs.norms)[:, None]
    labels = sample_labels(outputs, factor)
    best = nn.functional.cross_entropy(outputs.raw * factor, labels).item()
    fitted, temperature = AlphaBeta.fit(outputs, labels), Temperature.fit(outputs, labels)
    assert fitted.report.converged
    assert fitted.report.nll_after <= best  # it was fitted to these very labels
    assert fitted.report.nll_after < temperature.report.nll_after - 1e-4


def test_the_papers_form_can_only_sharpen() -> None:
    outputs = big()
    softer, sharper = sample_labels(outputs, 0.4), sample_labels(outputs, 2.5)
    assert AlphaBeta.fit(outputs, softer, scale=1.0).report.nll_after == pytest.approx(
        AlphaBeta.fit(outputs, softer, scale=1.0).report.nll_before, abs=1e-6
    )
    free = AlphaBeta.fit(outputs, softer)
    assert free.report.nll_after < free.report.nll_before - 0.1
    assert AlphaBeta.fit(outputs, sharper, scale=1.0).report.nll_after == pytest.approx(
        AlphaBeta.fit(outputs, sharper).report.nll_after, abs=1e-3
    )


@pytest.mark.parametrize("inputs", ["logits", "features"])
def test_the_papers_schedule_improves_an_under_confident_model(inputs: str) -> None:
    outputs = big(factor=1.0)
    fitted = AlphaBeta.fit(outputs, sample_labels(outputs, 4.0), inputs=inputs, method="sgd")
    exact = AlphaBeta.fit(outputs, sample_labels(outputs, 4.0), inputs=inputs)
    assert fitted.report.nll_after < fitted.report.nll_before
    assert fitted.report.nll_after == pytest.approx(exact.report.nll_after, abs=0.02)


def test_alpha_beta_gradient_against_autograd() -> None:
    """At the optimum of the ridged loss the gradient by autograd vanishes: the analytic one was right."""
    from shiftprism.calibrators._alpha_beta_maps import Problem, fit_maps
    from shiftprism.heads import multiplier

    outputs = big(samples=6000)
    labels = sample_labels(outputs, 0.2 + 0.6 * torch.sigmoid(outputs.raw[:, :1]))
    found = fit_maps(Problem(outputs.raw.numpy(), outputs.norms.numpy(), outputs.raw.numpy(), labels.numpy()), None, 0)
    assert found.kept_temperature == ""  # no fall-back: this is the fit's own end
    assert found.converged
    assert found.ridge < 1  # a gap of 1e-9 under a strong ridge leaves a larger gradient
    weight = torch.from_numpy(found.weight).requires_grad_()
    offset = torch.from_numpy(found.offset).requires_grad_()
    a, b = nn.functional.linear(outputs.raw, weight, offset).unbind(1)
    m = found.scale * multiplier(outputs.norms, torch.sigmoid(a), nn.functional.softplus(b))
    loss = nn.functional.cross_entropy(m[:, None] * outputs.raw, labels)
    loss = loss + found.ridge / 2 * (weight * outputs.raw.std(0, correction=0)).square().sum()
    loss.backward()
    assert weight.grad is not None
    assert offset.grad is not None
    assert weight.grad.abs().max() < 1e-4
    assert offset.grad.abs().max() < 1e-4


def test_hessians_of_softmax_regression_against_autograd() -> None:
    """A wrong one costs steps, not the optimum: no fit shows it."""
    from shiftprism.calibrators._softmax_regression import _matrix_hessian, diagonal_hessian

    z, labels = (
        torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        torch.arange(30) % 3,
    )
    scale, bias = torch.tensor([[0.5, 1.0, 2.0], [0.3, 0.0, -1.0]], dtype=torch.float64)
    p = torch.softmax(z * scale + bias, 1).numpy()

    def loss(theta: Tensor) -> Tensor:
        return nn.functional.cross_entropy(nn.functional.linear(z, theta[:, :-1], theta[:, -1]), labels)

    def diagonal_loss(theta: Tensor) -> Tensor:
        return nn.functional.cross_entropy(z * theta[:3] + theta[3:], labels)

    theta, both = torch.hstack([scale.diag(), bias[:, None]]), torch.cat([scale, bias])
    x = np.hstack([z.numpy(), np.ones((30, 1))])
    expected = torch.autograd.functional.hessian(loss, theta).reshape(12, 12)
    np.testing.assert_allclose(_matrix_hessian(p, x), expected, atol=1e-12)
    expected = torch.autograd.functional.hessian(diagonal_loss, both)
    np.testing.assert_allclose(diagonal_hessian(p, z.numpy()), expected, atol=1e-12)


def test_the_loss_of_monotone_slopes_against_autograd() -> None:
    """Value, gradient and Gauss-Newton curvature, with the calibrator itself as the map from slopes to logits."""
    from shiftprism.calibrators._monotone import _SlopeLoss

    outputs, labels, ridge = big(samples=40, classes=4), torch.arange(40) % 4, 0.7
    theta = 0.3 * torch.randn(16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    calibrator = Monotone(torch.zeros(4, 3), torch.zeros(4), 1.0)

    def logits(theta: Tensor) -> Tensor:
        weight, offset = theta.reshape(4, 4).split([3, 1], 1)
        buffers = {"weight": weight, "offset": offset[:, 0]}
        return torch.func.functional_call(calibrator, buffers, (outputs,))  # type: ignore[no-any-return]

    def loss(theta: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits(theta), labels) + ridge / 2 * theta.square().sum()

    gaps = (outputs.logits - outputs.logits.amax(1, keepdim=True)).numpy()
    value, gradient, curvature = _SlopeLoss(gaps, labels.numpy())(theta.numpy(), ridge, curved=True)
    assert value == pytest.approx(float(loss(theta)))
    np.testing.assert_allclose(gradient, torch.autograd.functional.jacobian(loss, theta), atol=1e-9)
    slopes, p = torch.autograd.functional.jacobian(logits, theta), torch.softmax(logits(theta), 1)
    spread = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    expected = torch.einsum("nka,nkl,nlb->ab", slopes, spread, slopes) / 40
    np.testing.assert_allclose(curvature, expected, atol=1e-9)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_a_search_takes_the_same_steps_in_any_unit(unit: float) -> None:
    """A logistic regression with parameters counted in `unit`: which steps are remembered may not depend on it."""
    from shiftprism.calibrators._descent import Descent, descend

    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)) * np.arange(1, 7)
    sign = np.sign(x.sum(1) + 5 * rng.normal(size=200))

    def search(unit: float) -> Descent:
        def objective(point: Any) -> tuple[float, Any]:
            margins = sign * (x @ (unit * point))
            slope = -x.T @ (sign / (1 + np.exp(margins))) / 200
            return float(np.logaddexp(0, -margins).mean()), unit * slope

        return descend(objective, np.zeros(6), lambda gradient: gradient / unit**2 / 10)

    plain, scaled = search(1.0), search(unit)
    assert plain.converged
    assert scaled.iterations == plain.iterations
    np.testing.assert_allclose(unit * scaled.point, plain.point, rtol=1e-6)


def test_few_samples_keep_the_temperature() -> None:
    outputs = big(samples=40)
    labels = sample_labels(outputs, 0.3)
    fitted = AlphaBeta.fit(outputs, labels)
    assert fitted.report.kept == "temperature"
    assert fitted.report.note == "kept the temperature: fewer than 50 samples"
    torch.testing.assert_close(fitted(outputs), Temperature.fit(outputs, labels)(outputs), rtol=1e-4, atol=1e-4)


def test_the_table_says_what_each_calibrator_computes_keeps_and_needs() -> None:
    titles, *rows = describe_calibrators()
    assert [row[0] for row in rows] == list(CALIBRATORS)
    assert all(len(row) == len(titles) for row in rows)
    assert rows[0][1:] == ("z / T, one number for all inputs (Guo et al. 2017)", "Temperature", "yes", "yes")
    keeping = {"temperature", "alpha-beta", "exponential-map", "monotone", "shift-aware"}
    assert {row[0] for row in rows if row[3] == "yes"} == keeping
    assert {row[0] for row in rows if row[4] == "no"} == {"alpha-beta", "exponential-map", "shift-aware"}


def test_alpha_beta_refuses_what_it_cannot_do() -> None:
    outputs = outputs_of()
    labels = torch.arange(20) % 4
    with pytest.raises(ValueError, match="but got one made from logits alone"):
        AlphaBeta.fit(Outputs.from_logits(outputs.logits), labels)
    with pytest.raises(ValueError, match="Expected `inputs` to be one of features, logits but got 'images'"):
        AlphaBeta.fit(outputs, labels, inputs="images")
    with pytest.raises(ValueError, match="Expected `method` to be one of lbfgs, sgd but got 'adam'"):
        AlphaBeta.fit(outputs, labels, method="adam")
    with pytest.raises(ValueError, match=r"Expected `scale` to be in \(0, 1\] but got 2"):
        AlphaBeta.fit(outputs, labels, scale=2.0)
    with pytest.raises(ValueError, match="this calibrator was fitted to another model"):
        AlphaBeta.identity(7)(outputs)
    with pytest.raises(ValueError, match="Expected `temperature` to be positive and finite but got -1"):
        Temperature(-1.0)
