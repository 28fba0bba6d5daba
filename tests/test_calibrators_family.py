"""What single calibrators promise beyond the laws: known optima, penalties, steps, order; the protocols; the files."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from calibrators_examples import big, make_problem, sample_labels
from examples import outputs_of
from shiftprism import metrics
from shiftprism._files import read_metadata, write_tensors
from shiftprism.calibrators import (
    CALIBRATORS,
    PAPER,
    AlphaBeta,
    Calibrator,
    Dirichlet,
    ExponentialMap,
    Fit,
    Histogram,
    Isotonic,
    Matrix,
    Monotone,
    Penalty,
    Temperature,
    Vector,
    _affine,
    cross_validate,
    load,
    paper_table,
)
from shiftprism.calibrators._alpha_beta_maps import RIDGES, Problem, _fit_with_ridge, constant_maps, fit_maps
from shiftprism.calibrators._calibrator import check_fit_data
from shiftprism.calibrators._paper_schedule import train_linear
from shiftprism.outputs import Outputs


def nll(logits: Tensor, labels: Tensor) -> float:
    return float(nn.functional.cross_entropy(logits, labels))


def test_vector_is_the_optimum_scipy_finds() -> None:
    outputs, labels = make_problem()
    z, classes = outputs.logits, outputs.K

    def loss(
        theta: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> tuple[float, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        values = torch.from_numpy(theta).requires_grad_()
        found = nn.functional.cross_entropy(z * values[:classes] + values[classes:], labels)
        (gradient,) = torch.autograd.grad(found, values)
        return float(found.detach()), gradient.numpy()

    best = minimize(loss, np.r_[np.ones(classes), np.zeros(classes)], jac=True, method="BFGS", options={"gtol": 1e-9})
    fitted = Vector.fit(outputs, labels)
    assert fitted.report.converged
    assert fitted.report.nll_after == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.parametrize("kind", [Matrix, Dirichlet])
def test_matrix_without_a_penalty_is_a_logistic_regression(kind: type[Matrix] | type[Dirichlet]) -> None:
    outputs, labels = make_problem()
    inputs = outputs.logits if kind is Matrix else torch.log_softmax(outputs.logits, 1)
    witness = LogisticRegression(C=np.inf, tol=1e-10, max_iter=5000).fit(inputs.numpy(), labels.numpy())
    best = -witness.predict_log_proba(inputs.numpy())[np.arange(len(labels)), labels].mean()
    fitted = kind.fit(outputs, labels, penalty=PAPER)
    assert fitted.report.converged
    assert fitted.report.nll_after == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("kind", [Matrix, Dirichlet])
@pytest.mark.parametrize("classes", [4, 25])
def test_the_gradient_of_the_penalised_loss_vanishes(kind: type[Matrix] | type[Dirichlet], classes: int) -> None:
    """With the whole Hessian (4 classes) and with its approximation (25)."""
    outputs, labels = make_problem(classes=classes)
    penalty = Penalty(2.0, 0.3, 0.1)
    fitted = kind.fit(outputs, labels, penalty=penalty)
    inputs = outputs.logits if kind is Matrix else torch.log_softmax(outputs.logits, 1)
    best = Temperature.fit(logits=inputs, labels=labels).temperature.double()
    weight, bias = fitted.weight.double().requires_grad_(), fitted.bias.double().requires_grad_()
    off = ~torch.eye(classes, dtype=torch.bool)
    loss = nn.functional.cross_entropy(nn.functional.linear(inputs, weight, bias), labels)
    loss = loss + penalty.off_diagonal * weight[off].square().mean() + penalty.intercept * bias.square().mean()
    loss = loss + penalty.diagonal * (weight.diagonal() - 1 / best).square().mean()
    slopes = torch.autograd.grad(loss, [weight, bias])
    # a gap of 1e-9 or, in float32, of 1e-7 below a curvature of about 1
    assert max(float(slope.abs().max()) for slope in slopes) < (1e-4 if classes == 4 else 2e-3)


def test_the_path_shrinks_to_the_temperature_where_there_is_nothing_else() -> None:
    """25 classes, 600 samples, labels by a temperature: an unpenalised matrix is far worse on fresh labels."""
    generator = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(600, 25, dtype=torch.float64, generator=generator)
    labels, fresh = torch.multinomial(torch.softmax(z / 2, 1), 2, True, generator=generator).unbind(1)
    outputs = Outputs.from_logits(z)
    best = nll(Temperature.fit(outputs, labels)(outputs), fresh)
    # the method's own candidates, before `fit` judges them
    data = check_fit_data(outputs, labels)
    path, unpenalised = (Matrix._fit(data, **options)[0].calibrator for options in ({}, {"penalty": PAPER}))  # type: ignore[arg-type]
    assert nll(path(outputs), fresh) < best + 0.01
    assert nll(unpenalised(outputs), fresh) > best + 0.5
    judged = Matrix.fit(outputs, labels, penalty=PAPER)
    assert judged.report.kept == "temperature"
    assert nll(judged(outputs), fresh) < best + 0.01


@pytest.mark.parametrize("penalty", ["odir", "shrink"])
def test_the_path_finds_a_matrix_where_there_is_one(penalty: str) -> None:
    outputs, labels = make_problem()
    fresh, truth = make_problem(seed=1)
    fitted = Matrix.fit(outputs, labels, penalty=penalty)
    assert "cross validation" in fitted.report.note
    assert nll(fitted(fresh), truth) < nll(Vector.fit(outputs, labels)(fresh), truth) - 0.05


@pytest.mark.parametrize("kind", [Matrix, Dirichlet])
def test_the_papers_schedule(kind: type[Matrix] | type[Dirichlet]) -> None:
    outputs, labels = make_problem()
    fitted = kind.fit(outputs, labels, method="sgd")
    assert fitted.report.iterations == 20 * 24
    assert fitted.report.nll_after < fitted.report.nll_before
    assert "fixed schedule" in fitted.report.note
    same = kind.fit(Outputs.from_logits(0.01 * outputs.logits), torch.zeros_like(labels), method="sgd", seed=3)
    assert same.report.nll_after <= same.report.nll_before


@pytest.mark.parametrize(
    ("kind", "classes", "rate"), [(Matrix, 10, 0.1), (Dirichlet, 10, 0.01), (Dirichlet, 11, 0.005)]
)
def test_the_papers_rates(
    kind: type[Matrix] | type[Dirichlet], classes: int, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = []
    train = train_linear

    def spy(*arguments: Any, rate: float, **options: Any) -> Any:
        rates.append(rate)
        return train(*arguments, rate=rate, **options)

    monkeypatch.setattr(_affine, "train_linear", spy)
    outputs, labels = make_problem(60, classes)
    kind.fit(outputs, labels, method="sgd")
    assert set(rates) == {rate}


def test_isotonic_is_the_one_of_scikit_learn() -> None:
    outputs, labels = make_problem()
    confidence, predicted = torch.softmax(outputs.logits, 1).max(1)
    witness = IsotonicRegression(y_min=1 / 3002, y_max=3001 / 3002).fit(confidence, (predicted == labels).double())
    ours = Isotonic.fit(outputs, labels)(outputs).exp().gather(1, predicted[:, None]).squeeze(1)
    np.testing.assert_allclose(ours, witness.predict(confidence), atol=1e-6)


def test_histogram_gives_the_share_of_right_ones_in_each_bin() -> None:
    outputs, labels = make_problem()
    confidence, predicted = torch.softmax(outputs.logits, 1).max(1)
    fitted = Histogram.fit(outputs, labels, bins=3)
    ours = fitted(outputs).exp().gather(1, predicted[:, None]).squeeze(1)
    order = confidence.argsort()
    for part in order.split(1000):
        assert float(ours[part].mean()) == pytest.approx(float((predicted == labels)[part].double().mean()), abs=1e-3)


def test_histogram_has_no_empty_bin() -> None:
    """Quantiles are .6, .86, .9 and .93: no sample lies between the last two, and a share of 0 there is wrong."""
    p = torch.tensor([0.6] * 50 + [0.7] * 3 + [0.9] * 20 + [0.95] * 27, dtype=torch.float64)
    right = torch.arange(100) % 10 > 1
    outputs = Outputs.from_logits(torch.stack([p, 1 - p], 1).log())
    fitted = Histogram.fit(outputs, (~right).long())
    shares = [float(part.double().mean()) for part in right.split([50, 3, 20, 27])]
    assert fitted.values.tolist() == pytest.approx(shares)
    few = Histogram.fit(Outputs.from_logits(outputs.logits[48:54]), (~right).long()[48:54])
    assert len(few.values) == 3


@pytest.mark.parametrize("kind", [Isotonic, Histogram])
def test_steps_leave_the_odds_of_the_other_classes(kind: type[Isotonic] | type[Histogram]) -> None:
    outputs, labels = make_problem()
    p, q = torch.softmax(outputs.logits, 1), kind.fit(outputs, labels)(outputs).exp()
    torch.testing.assert_close(q.sum(1), torch.ones(3000, dtype=torch.float64))
    rest = p.argsort(1)[:, :-1]
    odds = [part.gather(1, rest) / part.gather(1, rest).sum(1, keepdim=True) for part in (p, q)]
    torch.testing.assert_close(*odds)


@given(st.integers(0, 99), st.integers(2, 6))
def test_monotone_keeps_the_order_of_all_classes(seed: int, classes: int) -> None:
    outputs, labels = make_problem(120, classes, seed)
    logits = Monotone.fit(outputs, labels)(outputs)
    order = outputs.logits.argsort(1)
    assert (logits.gather(1, order).diff(dim=1) >= 0).all()


def test_monotone_finds_what_one_multiplier_cannot() -> None:
    """Far logits that count half of what near ones do."""
    z = 4 * torch.randn(6000, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gaps = z - z.amax(1, keepdim=True)
    bent = gaps.clamp_min(-2) + 0.3 * (gaps + 2).clamp_max(0)
    labels = torch.multinomial(torch.softmax(bent, 1), 1, generator=torch.Generator().manual_seed(1)).squeeze(1)
    outputs = Outputs.from_logits(z)
    fitted = Monotone.fit(outputs, labels)
    assert fitted.report.converged
    assert fitted.report.nll_after < Temperature.fit(outputs, labels).report.nll_after - 0.01
    assert fitted.report.nll_after < nll(bent, labels) + 0.005


def test_exponential_map_has_the_published_rate_and_recovers_its_numbers() -> None:
    torch.manual_seed(0)
    features = 3 * torch.rand(20_000, 6, dtype=torch.float64)
    raw = features @ torch.randn(5, 6, dtype=torch.float64).T
    norms = features.norm(dim=1)
    rate = -np.log(0.1) / float(norms.mean() - norms.std(correction=0))
    m = (1 + 2 * (1 - (-rate * norms).exp()) / norms) / 1.5
    labels = torch.multinomial(torch.softmax(m[:, None] * raw, 1), 1).squeeze(1)
    outputs = Outputs(features, norms, raw / norms[:, None], raw, raw)
    fitted = ExponentialMap.fit(outputs, labels)
    assert fitted.report.converged
    assert float(fitted.rate) == pytest.approx(rate, rel=1e-6)
    torch.testing.assert_close(fitted(outputs), m[:, None] * raw, rtol=0.1, atol=0.1)
    after = ExponentialMap.fit(outputs, labels, as_published=True)
    assert fitted.report.nll_after <= after.report.nll_after <= after.report.nll_before


def test_the_exponential_map_drops_a_useless_beta_but_not_as_published() -> None:
    """Labels of a plain temperature of 2."""
    outputs = big(samples=1000)
    labels = sample_labels(outputs, 0.5)
    kept = {by: ExponentialMap.fit(outputs, labels, as_published=by) for by in (False, True)}
    assert [fitted.report.kept for fitted in kept.values()] == ["temperature", "fit"]
    assert float(kept[False].beta) == 0 < float(kept[True].beta)


@pytest.mark.parametrize("name", sorted(set(CALIBRATORS) - {"shift-aware"}))
def test_bare_arrays_are_taken_when_named(name: str) -> None:
    outputs = outputs_of(samples=200)
    labels = torch.arange(200) % 4
    logits, fit = outputs.logits.numpy(), CALIBRATORS[name].fit
    if CALIBRATORS[name].needs_norms:
        with pytest.raises(ValueError, match="but got one made from logits alone"):
            fit(logits=logits, labels=labels)
        return
    fitted = fit(logits=logits, labels=labels.tolist())
    same = fit(probabilities=torch.softmax(outputs.logits, 1), labels=labels.numpy())
    expected = torch.softmax(fitted(Outputs.from_logits(outputs.logits)), 1)
    torch.testing.assert_close(fitted.probabilities(logits=logits), expected)
    if CALIBRATORS[name].probabilities_suffice:
        torch.testing.assert_close(same.probabilities(logits=logits), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match=r"rows of numbers ≥ 0 that sum to 1 but got .*pass logits="):
        fit(probabilities=logits, labels=labels)
    with pytest.raises(ValueError, match="the only one given of outputs, logits, probabilities but got"):
        fit(outputs, labels, logits=logits)
    with pytest.raises(ValueError, match="but got none; pass an Outputs, or name what the array holds"):
        fit(labels=labels)


@pytest.mark.parametrize("name", sorted(set(CALIBRATORS) - {"shift-aware"}))
def test_saved_and_loaded_whole(name: str, tmp_path: Path) -> None:
    outputs = outputs_of(samples=200)
    fitted = CALIBRATORS[name].fit(outputs, torch.arange(200) % 4)
    fitted.save(tmp_path / "here", model="abc")
    other = load(tmp_path / "here", model="abc")
    assert type(other) is type(fitted)
    assert other.report == fitted.report
    assert torch.equal(other(outputs), fitted(outputs))
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["calibrator.json", "weights.safetensors"]
    with pytest.raises(ValueError, match="fitted to the model 'xyz' but got one fitted to 'abc'"):
        load(tmp_path / "here", model="xyz")


def test_loading_is_strict(tmp_path: Path) -> None:
    vector, flag = Vector(torch.ones(3), torch.zeros(3)), torch.tensor(False)
    vector.save(tmp_path)
    load(tmp_path)
    weights, about = tmp_path / "weights.safetensors", tmp_path / "calibrator.json"
    kind = read_metadata(weights, "shiftprism-calibrator-2", "")
    for tensors, fault in (
        ({"weight": torch.ones(3), "unchanged": flag}, "bias"),
        ({"weight": torch.ones(3), "bias": torch.zeros(3)}, "unchanged is missing"),
        ({"weight": torch.ones(3), "bias": torch.zeros(3), "unchanged": flag, "more": torch.zeros(1)}, "more"),
        ({"weight": torch.ones(3), "bias": torch.zeros(4), "unchanged": flag}, r"of shape \(K,\)"),
        ({"weight": torch.ones(3), "bias": torch.zeros(3), "unchanged": flag[None]}, r"unchanged has shape \(1,\)"),
    ):
        write_tensors(weights, tensors, kind)
        with pytest.raises(ValueError, match=f"tensors that fit the (calibrator|code) but got {tmp_path}.*{fault}"):
            load(tmp_path)
    write_tensors(weights, vector.state_dict() | {"bias": torch.ones(3)}, kind)
    with pytest.raises(
        ValueError, match=f"a whole saved calibrator but got {tmp_path} with the weights of another fit"
    ):
        load(tmp_path)
    about.write_text(
        json.dumps(
            {key: part for key, part in json.loads(about.read_text()).items() if key not in ("weights", "digest")}
        )
    )
    assert isinstance(load(tmp_path), Vector)  # as it was written before calibrators named their weights
    write_tensors(weights, vector.state_dict(), {})
    with pytest.raises(ValueError, match=f"a file of format shiftprism-calibrator-2 but got {weights}"):
        load(tmp_path)
    weights.write_bytes(b"cut off")
    with pytest.raises(ValueError, match=f"a whole safetensors file but got {weights}"):
        load(tmp_path)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=str(weights)):
        load(tmp_path)
    changes: list[dict[str, object]] = [{"format": "other"}, {"kind": "Oracle"}, {"kind": []}]
    changes += [{"settings": {"x": 1}}, {"report": {"x": 1}}]
    numbers = {"nll_before": 1.0, "nll_after": 1.0}
    odd_reports: list[dict[str, object]] = [{"nll_before": []}, {"nll_before": 1e999}, {"note": 7}, {"converged": 1}]
    changes += [{"report": {"converged": True, "iterations": 0, **numbers, **odd}} for odd in odd_reports]
    for change in changes:
        vector.save(tmp_path)
        about.write_text(json.dumps(json.loads(about.read_text()) | change))
        with pytest.raises(ValueError, match=f"Expected `folder` to be .* but got {tmp_path}"):
            load(tmp_path)
    about.write_text("{")
    with pytest.raises(ValueError, match=f"Expected `path` to be a saved calibrator but got {about}"):
        load(tmp_path)
    with pytest.raises(ValueError, match="Expected `path` to be a saved calibrator"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("unchanged", [None, False, True])
def test_folders_of_the_older_format_are_read_with_a_warning(unchanged: bool | None, tmp_path: Path) -> None:
    """Format 1: another file name, no `unchanged` for some kinds, and a report without the newer fields."""
    fitted: Calibrator = Temperature(2.0) if unchanged is None else ExponentialMap(2.0, 0.5, 1.0, unchanged=unchanged)
    tensors = fitted.state_dict()
    if unchanged is None:
        tensors.pop("unchanged")
    write_tensors(tmp_path / "calibrator.safetensors", tensors, {})
    report = {"converged": True, "iterations": 3, "nll_before": 2.0, "nll_after": None, "note": "so"}
    about = {"format": "shiftprism-calibrator-1", "kind": type(fitted).__name__, "settings": {}, "report": report}
    (tmp_path / "calibrator.json").write_text(json.dumps(about | {"model": "abc"}))
    outputs = outputs_of()
    with pytest.warns(UserWarning, match=f"{tmp_path} holds .* an older format; load it and save it again"):
        other = load(tmp_path, model="abc")
    assert torch.equal(other(outputs), fitted(outputs))
    assert other.report[:3] == (True, 3, 2.0)
    assert np.isnan(other.report.nll_after)
    other.save(tmp_path, "abc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calibrator.json", "weights.safetensors"]
    assert torch.equal(load(tmp_path, model="abc")(outputs), fitted(outputs))


def test_cross_validation_never_uses_the_sample_itself() -> None:
    """One sample's label is changed: what the calibrator says about that sample stays the same."""
    outputs, labels = make_problem(60)
    first = cross_validate(Vector, outputs, labels, folds=5)
    labels[7] = (labels[7] + 1) % 4
    second = cross_validate(Vector, outputs, labels, folds=5)
    assert torch.equal(first[7], second[7])
    assert not torch.equal(first, second)
    with pytest.raises(ValueError, match="Expected `folds` to be between 2 and the 60 samples but got 61"):
        cross_validate(Temperature, outputs, labels, folds=61)


def test_the_papers_table_is_made_of_its_parts() -> None:
    outputs, labels = make_problem(500)
    shifted = [(Outputs.from_logits(outputs.logits * factor), labels) for factor in (0.5, 2.0)]
    fits: dict[str, Fit] = {"temperature": Temperature, "matrix": partial(Matrix.fit, penalty=PAPER)}
    plain, line, _ = paper_table(fits, outputs, labels, shifted)
    assert plain.method == "none"
    p = torch.softmax(outputs.logits, 1)
    assert (plain.accuracy, plain.ece, plain.nll) == tuple(
        f(p, labels) for f in (metrics.accuracy, metrics.ece, metrics.nll)
    )
    inside = torch.softmax(cross_validate(Temperature, outputs, labels), 1)
    assert line.nll == metrics.nll(inside, labels)
    whole = Temperature.fit(outputs, labels)
    losses = [metrics.nll(torch.softmax(whole(one), 1), labels) for one, _ in shifted]
    assert line.nll_shifted == pytest.approx(sum(losses) / 2)
    with pytest.raises(ValueError, match="Expected `shifted` to be at least one condition"):
        paper_table(fits, outputs, labels, [])


def test_wrong_parameters_are_refused() -> None:
    outputs, labels = make_problem(60)
    with pytest.raises(ValueError, match=r"Expected `weight` to be of shape \(K,\)"):
        Vector(torch.ones(2, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"Expected `weight` to be of shape \(K, K\)"):
        Matrix(torch.ones(2, 3), torch.zeros(2))
    with pytest.raises(ValueError, match="this calibrator was fitted to another model"):
        Dirichlet(torch.eye(3), torch.zeros(3))(outputs)
    with pytest.raises(ValueError, match="this calibrator was fitted to another model"):
        Monotone(torch.zeros(4, 2), torch.zeros(4))(outputs)
    with pytest.raises(ValueError, match="Expected `penalty` to be finite weights ≥ 0"):
        Matrix.fit(outputs, labels, penalty=Penalty(-1, 0))
    with pytest.raises(ValueError, match="Expected `penalty` to be one of odir, shrink but got 'lasso'"):
        Matrix.fit(outputs, labels, penalty="lasso")
    with pytest.raises(ValueError, match="Expected `folds` to be at least 2 but got 1"):
        Matrix.fit(outputs, labels, folds=1)
    with pytest.raises(ValueError, match="Expected `alpha` to be positive and finite but got -1"):
        ExponentialMap(-1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="Expected `edges` to be"):
        Isotonic(torch.tensor([0.5, 0.2]), torch.full((3,), 0.5))
    with pytest.raises(ValueError, match="Expected `values` to be between 0 and 1"):
        Histogram(torch.zeros(0), torch.ones(1))
    with pytest.raises(ValueError, match="Expected `bins` to be at least 1"):
        Histogram.fit(outputs, labels, bins=0)


def test_alpha_beta_over_features_converges_quickly() -> None:
    """5000 x 32: plain L-BFGS took 600 iterations."""
    torch.manual_seed(0)
    features = torch.rand(5000, 32, dtype=torch.float64)
    raw = features @ torch.randn(10, 32, dtype=torch.float64).T * 2
    norms = features.norm(dim=1)
    labels = torch.multinomial(torch.softmax(raw * (0.2 + features[:, :1]), 1), 1).squeeze(1)
    outputs = Outputs(features, norms, raw / norms[:, None], raw, raw)
    report = AlphaBeta.fit(outputs, labels, inputs="features").report
    assert report.converged
    assert report.iterations < 200


def planted_maps(samples: int, inputs: int) -> Problem:
    """The true multiplier depends on the first input."""
    rng = np.random.default_rng(0)
    x, raw = rng.normal(size=(samples, inputs)), 3 * rng.normal(size=(samples, 5))
    true = raw / (1 + np.exp(-2 * x[:, :1]))
    return Problem(x, np.ones(samples), raw, (true + rng.gumbel(size=true.shape)).argmax(1))


def test_the_chosen_ridge_of_a_planted_case_is_inside_the_grid() -> None:
    found = fit_maps(planted_maps(2000, 6), None, 0)
    assert not found.kept_temperature
    assert RIDGES[-1] < found.ridge < RIDGES[0]


def test_more_inputs_than_samples_give_the_maps_of_the_inputs_without_copies() -> None:
    """60 copies of an input share its weight evenly, which costs a sixtieth: the same problem at 60 times the ridge."""
    few = planted_maps(300, 6)
    many = few._replace(x=np.repeat(few.x, 60, 1))
    constant = constant_maps(few, None)
    once = _fit_with_ridge(few, constant, 0.01, None)
    copied = _fit_with_ridge(many, constant, 0.6, None)
    assert copied.converged
    np.testing.assert_allclose(copied.weight.reshape(2, 6, 60).sum(2), once.weight, atol=1e-3)
    np.testing.assert_allclose(copied.offset, once.offset, atol=1e-3)
