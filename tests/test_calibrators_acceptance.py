"""When a fit is applied, and what happens where there is no optimum: perfect sets, ties, folds, the report."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from calibrators_examples import big, sample_labels
from shiftprism.calibrators import CALIBRATORS, Calibrator, Histogram, Isotonic, Temperature, Vector
from shiftprism.calibrators import _alpha_beta_maps as maps
from shiftprism.calibrators import _monotone as monotone
from shiftprism.calibrators import _penalty as penalty
from shiftprism.calibrators._acceptance import Losses, is_better, is_clear, stratified_folds
from shiftprism.calibrators._calibrator import UNFITTED, Candidate, FitData, Report
from shiftprism.calibrators._penalty import Penalty
from shiftprism.calibrators._scaled_loss import ScaledLoss
from shiftprism.calibrators._softmax_regression import SoftmaxRegression
from shiftprism.calibrators._temperature import optimal_temperature, why_keep_temperature
from shiftprism.outputs import Outputs

every_calibrator = pytest.mark.parametrize("name", sorted(set(CALIBRATORS) - {"shift-aware"}))
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


def test_what_was_made_from_parameters_says_so() -> None:
    report = Scaled(0.5).report
    assert report.converged
    assert (report.iterations, report.note) == (0, "made from given parameters")
    assert math.isnan(report.nll_before)
    assert math.isnan(report.nll_after)


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


@pytest.mark.parametrize("kind", [Isotonic, Histogram])
def test_right_answers_alone_are_no_reason_to_make_all_confidences_equal(kind: type[Calibrator]) -> None:
    """200 right answers, sure to .99 but for ten of .6: one step for all, which a mistake among the ten pays for."""
    confidence = torch.full((200,), 0.985).where(torch.arange(200) >= 10, torch.tensor(0.6))
    logits = torch.stack([confidence.log(), torch.log1p(-confidence), torch.full((200,), -30.0)], 1)
    report = kind.fit(logits=logits, labels=torch.zeros(200, dtype=torch.int64)).report
    assert report.all_right
    assert report.kept == "logits"
    chances = np.array([0.4] * 10 + [0.015] * 190)
    own, flat = Losses(-np.log1p(-chances), -np.log(chances)), Losses(np.full(200, 1 / 202), np.full(200, np.log(202)))
    assert is_better(flat, own, errors=2.0)  # the mistake of an average sample
    # by hand: the mistake of a sample of the chance c costs ln 202 + ln c more than before, and is drawn by c
    dearer = np.sum(chances * np.log(202 * chances)) / np.sum(chances)
    differences = np.append(flat.label - own.label, dearer)
    bound = differences.mean() + 2 * differences.std(ddof=1) / np.sqrt(201)
    assert bound > 0
    assert is_better(flat, own, -bound - 1e-9, errors=2.0, likely=True)
    assert not is_better(flat, own, -bound + 1e-9, errors=2.0, likely=True)


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


class Large(Scaled):
    """One factor on all data and another on folds; with so many parameters that the fit set alone decides nothing."""

    def __init__(self, factor: float, *, unchanged: bool = False, report: Report = UNFITTED) -> None:
        super().__init__(factor, unchanged=unchanged, report=report)
        self.register_buffer("others", torch.zeros(100_000))

    @classmethod
    def _fit(cls, data: FitData, *, whole: float, fold: float, sizes: list[int]) -> list[Candidate]:  # type: ignore[override]
        sizes.append(len(data.labels))
        return [Candidate(cls(whole if len(sizes) == 1 else fold), True, 1)]


@pytest.mark.parametrize(
    ("samples", "fold", "folds", "kept"),
    [(4000, 0.5, 1, "fit"), (4000, 3.0, 1, "logits"), (4000, 0.2, 5, "fit"), (1900, 0.5, 5, "fit")],
    ids=["clearly better", "clearly worse", "hard to tell", "too few samples"],
)
def test_no_more_folds_are_fitted_than_it_takes_to_tell(samples: int, fold: float, folds: int, kept: str) -> None:
    outputs = big(samples=samples)
    labels = sample_labels(outputs, 0.5)
    sizes: list[int] = []
    report = Large.fit(outputs, labels, whole=0.5, fold=fold, sizes=sizes).report
    assert sizes == [samples] + [samples * 4 // 5] * folds
    assert report.kept == kept
    rows = torch.from_numpy(stratified_folds(labels.numpy()) < folds)
    before, after = (nn.functional.cross_entropy(f * outputs.logits[rows], labels[rows]).item() for f in (1, fold))
    assert report.held_out_nll_before == pytest.approx(before)
    assert report.held_out_nll_after == pytest.approx(after if kept == "fit" else before)


def test_folds_spread_every_class_evenly() -> None:
    labels = np.array([0] * 11 + [1] * 3 + [2])
    folds = stratified_folds(labels)
    assert np.bincount(folds).tolist() == [3] * 5
    assert np.bincount(folds[:11], minlength=5).max() == 3
    assert len(set(folds[11:14])) == 3
    assert (folds == stratified_folds(labels)).all()
    assert sorted(stratified_folds(labels[:3])) == [0, 1, 2]


def test_a_fit_that_is_worse_on_the_fit_set_is_not_applied_whatever_the_folds_say() -> None:
    class WrongWhenWhole(Scaled):
        """The true factor on folds, a wrong one on all data."""

        @classmethod
        def _fit(cls, data: FitData, *, factors: tuple[float, ...] = ()) -> list[Candidate]:
            return [Candidate(cls(3.0 if len(data.labels) == 500 else 0.5), True, 1)]

    outputs = big(samples=500)
    report = WrongWhenWhole.fit(outputs, sample_labels(outputs, 0.5)).report
    assert report.kept == "logits"
    assert report.nll_after == report.nll_before


def losses_of(difference: list[float]) -> tuple[Losses, Losses]:
    """Losses whose differences are given; a mistake costs both the same."""
    mistake = np.zeros(len(difference))
    return Losses(np.array(difference), mistake), Losses(np.zeros(len(difference)), mistake)


def test_a_gain_must_exceed_its_standard_errors() -> None:
    """199 differences and the imagined one: the mean is -0.1, and the standard error near 1/14."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=199)
    pair = losses_of(list((noise - noise.mean()) / noise.std() - 0.1))
    assert is_better(*pair)
    assert not is_better(*pair, errors=2.0)
    assert not is_better(*pair, optimism=0.1)
    assert not is_better(pair[1], pair[0])


def test_the_fit_set_alone_decides_only_with_many_samples_and_few_parameters() -> None:
    pair = losses_of([-0.04, -0.06] * 1000)
    assert is_clear(*pair, parameters=32)
    assert not is_clear(*pair, parameters=34)  # three times the optimism of 34/2000 is beyond the gain
    assert not is_clear(*losses_of([-0.04, -0.06] * 999), parameters=1)


@pytest.mark.parametrize(("errors", "kept"), [(1.0, "fit"), (1e3, "logits")])
def test_a_method_may_ask_for_more_standard_errors(errors: float, kept: str) -> None:
    class Careful(Scaled):
        errors_to_beat = errors

    outputs = big(samples=500)
    assert Careful.fit(outputs, sample_labels(outputs, 0.5), factors=(0.5,)).report.kept == kept
    assert {name for name, kind in CALIBRATORS.items() if kind.errors_to_beat == 2} == {"histogram", "isotonic"}


def test_no_ridge_of_alpha_beta_is_judged_on_samples_of_its_own_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first input of the maps is the number of the sample: who saw which?"""
    outputs = big(samples=500)
    x = torch.cat([torch.arange(500.0, dtype=torch.float64)[:, None], outputs.raw], 1).numpy()
    problem = maps.Problem(x, outputs.norms.numpy(), outputs.raw.numpy(), sample_labels(outputs, 0.5).numpy())
    fitted: list[set[float]] = []
    judged: list[set[float]] = []
    fit, nll = maps._fit_with_ridge, maps.Maps.nll

    def spy_fit(part: maps.Problem, *rest: Any, **options: Any) -> maps.Maps:
        fitted.append(set(part.x[:, 0]))
        return fit(part, *rest, **options)

    def spy_nll(self: maps.Maps, part: maps.Problem) -> float:
        judged.append(set(part.x[:, 0]))
        return nll(self, part)

    monkeypatch.setattr(maps, "_fit_with_ridge", spy_fit)
    monkeypatch.setattr(maps.Maps, "nll", spy_nll)
    maps.fit_maps(problem, None, 0)
    search = [seen for seen in fitted if len(seen) < 500]
    assert len(search) >= 2
    assert all(len(seen) == 400 for seen in search)
    assert all(len(seen) == 100 and not seen & search[0] for seen in judged)


def test_no_ridge_of_monotone_and_no_penalty_is_judged_on_samples_of_its_own_fit() -> None:
    """Samples are told apart by the sum of their gaps, and by their numbers."""
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(500, 4))
    gaps, labels = z - z.max(1, keepdims=True), rng.integers(0, 4, 500)
    seen: list[set[float]] = []

    class Spy(monotone._SlopeLoss):
        def __init__(self, gaps: Any, labels: Any) -> None:
            seen.append(set(gaps.sum(1)))
            super().__init__(gaps, labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monotone, "_SlopeLoss", Spy)
        monotone._search(gaps, labels, 0)
    assert [len(part) for part in seen[:2]] == [400, 100]
    assert not seen[0] & seen[1]
    seen.clear()

    class SpyFold(penalty._Fold):
        def __init__(self, problem: Any, fitted: Any, held_out: Any) -> None:
            assert not set(fitted) & set(held_out)
            seen.append(set(held_out))
            super().__init__(problem, fitted, held_out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(penalty, "_Fold", SpyFold)
        penalty.choose_penalty(SoftmaxRegression(z, labels), 1.0, True, 5, 0)
    assert set().union(*seen) == set(range(500))


def test_the_reference_strength_is_the_published_one() -> None:
    """Berta et al. 2026: K (K − 1)/N for an entry off the diagonal, K/N for others; here as weights of means."""
    penalty = Penalty.reference(classes=4, samples=100, temperature=2.0, shrink=True)
    assert penalty == pytest.approx(((4 * 3) ** 2 * 4 / 100, 16 / 100, 16 * 4 / 100))
    assert Penalty.reference(4, 100, 2.0, shrink=False).diagonal == 0
    assert penalty.times(10, 100) == pytest.approx((10 * penalty[0], 100 * penalty[1], 10 * penalty[2]))


def test_class_frequencies_that_differ_free_the_intercept_and_not_the_matrix() -> None:
    """Labels drawn from softmax(z + b): the penalty of b is a tenth as strong as that of W, not ten times."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(300, 5))
    labels = (z + np.array([4, 0, 0, 0, -4]) + rng.gumbel(size=z.shape)).argmax(1)
    chosen = penalty.choose_penalty(SoftmaxRegression(z, labels), 1.0, True, 5, 0).penalty
    assert chosen is not None
    off_diagonal, intercept, diagonal = np.divide(chosen, Penalty.reference(5, 300, 1.0, shrink=True))
    assert intercept == pytest.approx(off_diagonal / 10)
    assert diagonal == pytest.approx(off_diagonal)
