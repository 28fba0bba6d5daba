"""When a fit is applied, and what happens where there is no optimum: perfect sets, ties, folds, the report."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from calibrators_examples import big, sample_labels
from shiftprism.calibrators import CALIBRATORS, Calibrator, Temperature, Vector
from shiftprism.calibrators._acceptance import stratified_folds
from shiftprism.calibrators._calibrator import UNFITTED, Candidate, FitData, Report
from shiftprism.calibrators._scaled_loss import ScaledLoss
from shiftprism.calibrators._temperature import optimal_temperature, why_keep_temperature
from shiftprism.outputs import Outputs

every_calibrator = pytest.mark.parametrize("name", sorted(CALIBRATORS))
temperature_like = [name for name, kind in sorted(CALIBRATORS.items()) if kind.includes_temperature]


@pytest.mark.parametrize("name", [*temperature_like, "isotonic", "histogram"])
@pytest.mark.parametrize("factor", [0.5, 4.0, 40.0])
def test_a_perfect_validation_set_does_not_make_it_certain_of_everything(name: str, factor: float) -> None:
    """All right on 300: rule of succession, a loss of 1/302 where a model is far from sure.

    A model that is sure already keeps its own logits: one mistake would cost more than 300 right answers gain.
    """
    outputs = big(factor, samples=300)
    report = CALIBRATORS[name].fit(outputs, outputs.predictions).report
    kept_own = factor > 1 and report.kept == "logits"
    floor = report.nll_before if kept_own else min(1 / 302, report.nll_before)
    assert report.nll_after == pytest.approx(floor, rel=0.05)
    assert report.all_right


def test_a_hundred_perfect_sets_all_end_at_the_floor() -> None:
    """The search comes to 1/(N + 2) from above and may end a rounding short of it: that is the floor all the same."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        samples, classes = int(rng.integers(50, 600)), int(rng.integers(2, 12))
        z = rng.normal(size=(samples, classes)) * np.exp(rng.uniform(-1, 1))
        loss = ScaledLoss(z, z.argmax(1))
        best = optimal_temperature(loss)
        assert best.note.startswith("every prediction was right")
        assert 0.8 < loss(1 / best.temperature)[0] * (samples + 2) < 1 + 1e-6


def test_ties_at_the_top_are_not_right_predictions() -> None:
    """A label that shares the largest logit costs ln 2 however sharp the logits; T → 0 is no optimum here either."""
    logits = 3 * torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = logits.argmax(1)
    second = torch.topk(logits, 2, 1).indices[:, 1]
    logits[:30, :] = logits[:30].scatter(1, second[:30, None], logits[:30].amax(1, keepdim=True))
    loss = ScaledLoss(logits.numpy(), labels.numpy())
    assert loss.no_optimum
    best = optimal_temperature(loss)
    assert loss(1 / best.temperature)[0] == pytest.approx(0.1 * math.log(2) + 1 / 302, rel=1e-3)
    report = Vector.fit(logits=logits, labels=labels).report
    assert not report.all_right
    assert why_keep_temperature(loss) == "no prediction was wrong, but some were ties"


def test_equal_logits_say_nothing_about_right_and_wrong() -> None:
    """Every class is at the top. A temperature cannot help; the class frequencies can."""
    labels = torch.arange(400) % 4 // 3  # three of class 0 for one of class 1
    report = Vector.fit(logits=torch.zeros(400, 3), labels=labels).report
    assert not report.all_right
    assert report.kept == "fit"
    assert report.nll_after == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), abs=1e-2)


class Scaled(Calibrator):
    """factor · z, whatever the data: `fit` takes the factors of its candidates."""

    def __init__(self, factor: float, *, unchanged: bool = False, report: Report = UNFITTED) -> None:
        super().__init__(report, unchanged, factor=factor)

    @classmethod
    def _fit(cls, data: FitData, *, factors: tuple[float, ...]) -> list[Candidate]:
        return [Candidate(cls(factor), True, number, str(factor)) for number, factor in enumerate(factors, 1)]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        return outputs.logits * self.get_buffer("factor").to(outputs.logits.dtype)


@pytest.mark.parametrize(
    ("factors", "kept"),
    [
        ((0.5,), 0.5),  # the true one
        ((0.6, 0.5), 0.5),  # a later one is better
        ((0.6, 3.0), 0.6),  # a later one is worse
        ((0.5, 0.5), 0.5),
        ((math.nan, 0.6), 0.6),
        ((3.0,), 1.0),  # worse than the model's own logits
        ((math.nan,), 1.0),
        ((math.inf, 3.0), 1.0),
    ],
)
def test_the_first_candidate_that_nothing_after_it_beats(factors: tuple[float, ...], kept: float) -> None:
    """The contract of `fit`, with the model's own logits as the last candidate."""
    outputs = big()
    labels = sample_labels(outputs, 0.5)
    fitted = Scaled.fit(outputs, labels, factors=factors)
    assert torch.equal(fitted(outputs), outputs.logits * torch.tensor(kept).double())
    report = fitted.report
    assert (report.kept, report.note) == (
        ("fit", str(kept)) if kept != 1.0 else ("logits", "kept the model's own logits: the fit was worse")
    )
    assert report.iterations == 1
    assert report.nll_before == pytest.approx(nn.functional.cross_entropy(outputs.logits, labels).item())
    assert report.nll_after == pytest.approx(nn.functional.cross_entropy(fitted(outputs), labels).item())


def held_out_parts(outputs: Outputs, labels: Tensor, fitted: int) -> tuple[Outputs, Tensor, Outputs, Tensor]:
    few, rest = slice(0, fitted), slice(fitted, None)
    return outputs.rows(few), labels[few], outputs.rows(rest), labels[rest]


@every_calibrator
def test_a_fit_to_few_samples_of_a_calibrated_model_does_no_harm(name: str) -> None:
    """Labels from the model's own probabilities, so no calibrator can help, and six draws must show little harm.

    Not none: in one draw of 36 (seed 5) all 130 sure answers happen to be right, and Isotonic believes them.
    """
    changes = []
    for seed in range(6):
        outputs = big(samples=2000, seed=seed, factor=8.0)
        few, labels, fresh, truth = held_out_parts(outputs, sample_labels(outputs, seed=seed), 200)
        fitted = CALIBRATORS[name].fit(few, labels)
        losses = [nn.functional.cross_entropy(logits, truth).item() for logits in (fitted(fresh), fresh.logits)]
        changes.append(losses[0] - losses[1])
    assert sum(changes) / 6 < 0.025


def test_right_answers_alone_are_no_reason_to_sharpen_a_sure_model() -> None:
    """200 right answers of a model that is right 99 times in 100: sharpening improves each, and harms on fresh data."""
    outputs = big(factor=20.0, samples=6000)
    labels = sample_labels(outputs, 0.7)
    right = outputs.predictions == labels
    first = right.nonzero().squeeze(1)
    sure = first[torch.softmax(outputs.logits, 1).amax(1)[first] > 0.9][:200]
    report = Temperature.fit(outputs.rows(sure), labels[sure]).report
    assert report.all_right
    assert report.kept == "logits"
    assert "not clearly better on held-out folds (NLL " in report.note


def test_a_clear_gain_at_five_thousand_is_kept_and_so_is_one_shown_by_folds_alone() -> None:
    """The size of CIFAR's held-out set. With 5,000 samples no folds are fitted, with 500 they are."""
    outputs = big(samples=5000)
    labels = sample_labels(outputs, 0.6)
    clear = Temperature.fit(outputs, labels).report
    assert clear.kept == "fit"
    assert math.isnan(clear.held_out_nll_after)
    few = Temperature.fit(outputs.rows(slice(0, 500)), labels[:500]).report
    assert few.kept == "fit"
    assert few.held_out_nll_before == pytest.approx(few.nll_before)
    assert few.nll_after < few.held_out_nll_after < few.held_out_nll_before
    assert few.held_out_ece_after < few.held_out_ece_before


class Memory(Calibrator):
    """It knows the labels of the fit set by heart, and no others: a perfect fit that is of no use."""

    def __init__(self, keys: Tensor, labels: Tensor, *, unchanged: bool = False, report: Report = UNFITTED) -> None:
        super().__init__(report, unchanged, keys=keys, labels=labels)

    @classmethod
    def _fit(cls, data: FitData) -> list[Candidate]:
        return [Candidate(cls(data.outputs.logits[:, 0], torch.from_numpy(data.labels)), True, 1)]

    def _calibrate(self, outputs: Outputs) -> Tensor:
        same = outputs.logits[:, :1].float() == self.get_buffer("keys")
        bonus = torch.zeros_like(outputs.logits)
        known = same.any(1)
        labels = self.get_buffer("labels")[same.int().argmax(1)].long()
        bonus[known, labels[known]] = 50.0
        return outputs.logits + bonus


def test_what_was_learned_by_heart_is_not_applied() -> None:
    outputs = big(samples=400)
    report = Memory.fit(outputs, sample_labels(outputs, 0.5)).report
    assert report.kept == "logits"
    assert report.nll_after == report.nll_before
    assert report.held_out_nll_after == report.held_out_nll_before == pytest.approx(report.nll_before)


def test_folds_spread_every_class_evenly() -> None:
    labels = np.array([0] * 11 + [1] * 3 + [2])
    folds = stratified_folds(labels)
    assert np.bincount(folds).tolist() == [3] * 5
    assert np.bincount(folds[:11], minlength=5).max() == 3
    assert len(set(folds[11:14])) == 3
    assert (folds == stratified_folds(labels)).all()
    assert sorted(stratified_folds(labels[:3])) == [0, 1, 2]
