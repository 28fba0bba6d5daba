"""The laws every score keeps, and the paper's identities between g, h, U and the KL divergence."""

import copy
import math
from decimal import Decimal, localcontext
from functools import cache
from inspect import signature

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from torch import Tensor, nn

from examples import features_of, head_of, many_outputs, outputs_of
from shiftprism.calibrators import CALIBRATORS
from shiftprism.heads import Head
from shiftprism.metrics import auroc
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, Score, energy, entropy, g, gen, h, kl_uniform, max_similarity, msp, u

# the kernel distance is a DUQ head's alone: tests/test_scores_table.py
# style and spectrum need shifted copies: tests/test_scores_style.py
GENERAL = sorted(name for name, entry in SCORES.items() if name != "kernel" and "shifted" not in entry.needs)
every_score = pytest.mark.parametrize("name", GENERAL)
CONFIDENCES: tuple[Score, ...] = (msp, entropy, gen)
SIDES = ((torch.tensor([2.0, 0.0]), 1), (torch.tensor([1.0, 0.0]), 2))
LINEAR = ("vanilla", "alpha", "beta", "alpha-beta", "gsd", "inner")


def spread(samples: int, width: int, seed: int) -> Tensor:
    """Features around one direction a class, in turn; no two alike and none of them 0."""
    return (
        3 * torch.eye(width, dtype=torch.float64)[torch.arange(samples) % 4] + features_of(samples, width, seed) + 0.1
    )


@cache
def fit_score(name: str, dtype: torch.dtype = torch.float64) -> tuple[Head, Score]:
    """A head and the score of that name, fitted to what the head says about features like those it will score."""
    head = head_of("alpha-beta").to(dtype)
    with torch.no_grad():
        known, held = (head.outputs(spread(n, 6, seed).to(dtype)) for n, seed in ((80, 1), (40, 2)))
    return head, SCORES[name].fit(known, torch.arange(80) % 4, head=head, reference=held)


def outputs_for(head: Head, samples: int = 20) -> Outputs:
    with torch.no_grad():
        return head.outputs(spread(samples, 6, 3))


@st.composite
def any_fit(draw: st.DrawFn) -> tuple[Head, Outputs, Tensor]:
    """A head, its Outputs for few or many samples of any scale, and labels that leave classes out at times."""
    samples, width, classes = draw(st.integers(1, 12)), draw(st.integers(1, 8)), draw(st.integers(1, 7))
    head = head_of(draw(st.sampled_from(LINEAR)), width, classes, draw(st.integers(0, 99)))
    values = features_of(samples, width, draw(st.integers(0, 99)), 10.0 ** draw(st.integers(-12, 12)))
    values[0] *= draw(st.sampled_from([0.0, 1.0]))
    labels = torch.arange(samples) % draw(st.integers(1, classes))
    with torch.no_grad():
        return head, head.outputs(values), labels


@given(any_fit(), st.sampled_from(GENERAL))
@settings(max_examples=300)
def test_one_finite_number_an_input(case: tuple[Head, Outputs, Tensor], name: str) -> None:
    head, outputs, labels = case
    values = SCORES[name].fit(outputs, labels, head=head, reference=outputs)(outputs)
    assert values.shape == (outputs.N,)
    assert values.isfinite().all()
    assert values.dtype == outputs.logits.dtype


@given(many_outputs(), st.sampled_from(sorted(name for name, entry in SCORES.items() if entry.ready)))
def test_one_finite_number_an_input_for_any_head(outputs: Outputs, name: str) -> None:
    values = SCORES[name](outputs)
    assert values.shape == (outputs.N,)
    assert values.isfinite().all()


@every_score
def test_float32_stays_float32_and_finite_far_out(name: str) -> None:
    head, score = fit_score(name, torch.float32)
    with torch.no_grad():
        far = head.outputs(features_of(scale=1e20).float())
    assert score(far).dtype == torch.float32
    assert score(far).isfinite().all()


@every_score
def test_precision_follows_the_input(name: str) -> None:
    head, score = fit_score(name)
    outputs = outputs_for(head)
    close = score(outputs.to(torch.float32))
    assert close.dtype == torch.float32
    torch.testing.assert_close(close.double(), score(outputs), rtol=1e-3, atol=1e-3)


@every_score
def test_parts_score_as_the_whole(name: str) -> None:
    head, score = fit_score(name)
    outputs = outputs_for(head)
    parts = [score(outputs.rows(slice(i, i + 7))) for i in range(0, 20, 7)]
    torch.testing.assert_close(torch.cat(parts), score(outputs))


@every_score
def test_batch_order_and_class_order_do_not_matter(name: str) -> None:
    head, score = fit_score(name)
    outputs = outputs_for(head)
    order = torch.randperm(20)
    torch.testing.assert_close(score(outputs.rows(order)), score(outputs)[order])

    classes = torch.tensor([2, 0, 3, 1])
    renamed = copy.deepcopy(head)
    renamed.get_parameter("weight").data = head.get_parameter("weight").data[classes]
    with torch.no_grad():
        known, held = (renamed.outputs(spread(n, 6, seed)) for n, seed in ((80, 1), (40, 2)))
    labels = classes.argsort()[torch.arange(80) % 4]
    again = SCORES[name].fit(known, labels, head=renamed, reference=held)
    torch.testing.assert_close(again(outputs_for(renamed)), score(outputs))


@every_score
def test_higher_means_in_distribution(name: str) -> None:
    """ID features lie along their class weight; the others are weak and point where no class is."""
    head = head_of("vanilla", 8, 4)
    known, held, inside = (
        2 * torch.eye(8)[torch.arange(200) % 4] + 0.1 * features_of(200, 8, seed) for seed in range(3)
    )
    outside = 0.2 + 0.1 * features_of(200, 8, 4)
    outside[:, 4:] += 0.5
    with torch.no_grad():
        head.get_parameter("weight").copy_(3 * torch.eye(4, 8))
        said = [head.outputs(values) for values in (known, held, inside, outside)]
    score = SCORES[name].fit(said[0], torch.arange(200) % 4, head=head, reference=said[1])
    # a rank among 200 ties the lowest of ID with everything below it
    assert auroc(score(said[2]), score(said[3])) >= (0.97 if "reference" in takes(name) else 1)


def takes(name: str) -> set[str]:
    return set(signature(getattr(SCORES[name].implementation, "fit", SCORES[name].implementation)).parameters)


def test_exports_with_a_dynamic_batch() -> None:
    """All in one program: the exporter's own work would take a second for each score."""

    class Scored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, _ = fit_score("u")
            self.scores = {name: fit_score(name)[1] for name in GENERAL}
            self.fitted = nn.ModuleList(score for score in self.scores.values() if isinstance(score, nn.Module))

        def forward(self, features: Tensor) -> dict[str, Tensor]:
            outputs = self.head.outputs(features)
            return {name: score(outputs) for name, score in self.scores.items()}

    module = Scored()
    program = torch.export.export(module, (features_of(4),), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(program.module()(features_of(9)), module(features_of(9)))


def test_a_mixture_of_few_samples_exports_too() -> None:
    """Its classes are kept in another form where they have at most D/2 samples; here two have more."""
    head = head_of("vanilla", 50, 4)
    with torch.no_grad():
        known, new = (head.outputs(spread(n, 50, seed)) for n, seed in ((80, 1), (9, 2)))
    score = SCORES["gmm"].fit(known, torch.tensor([0] * 30 + [1, 2, 2, 2, 3] * 10))
    assert isinstance(score, nn.Module)
    assert [len(score.get_buffer(name)) for name in ("whitening", "spans")] == [2, 2]
    dynamic = (Outputs._make({0: torch.export.Dim("n")} for _ in range(6)),)
    program = torch.export.export(score, (known,), dynamic_shapes=dynamic)
    torch.testing.assert_close(program.module()(new), score(new))


@every_score
def test_bad_outputs_are_refused(name: str) -> None:
    head, score = fit_score(name)
    outputs = outputs_for(head)
    for use in (score, lambda bad: SCORES[name].fit(bad, torch.arange(20) % 4, head=head, reference=outputs)(bad)):
        with pytest.raises(ValueError, match="Expected `outputs` to be an Outputs but got Tensor"):
            use(outputs.logits)  # type: ignore[arg-type]
        for value in (math.nan, math.inf):
            broken = Outputs(*(field.clone() for field in outputs))
            for field in broken:
                field[3] = value
            with pytest.raises(ValueError, match=r"Expected `outputs\.\w+` to be finite but got 1 rows .* at row 3"):
                use(broken)
        if SCORES[name].reads != ("logits",):
            with pytest.raises(ValueError, match="but got one made from logits alone"):
                use(Outputs.from_logits(outputs.logits))
    with pytest.raises(ValueError, match="Expected `outputs` to be non-empty"):
        score(outputs.rows(slice(0, 0)))


@given(many_outputs())
def test_u_is_g_times_h_and_the_spread_of_the_plain_logits(outputs: Outputs) -> None:
    plain = outputs.norms[:, None] * outputs.similarities
    rounding = 1e-12 * float(1 + plain.abs().max())
    assert torch.equal(u(outputs), g(outputs) * h(outputs))
    torch.testing.assert_close(u(outputs), plain.amax(1) - plain.mean(1), rtol=1e-9, atol=rounding)


@given(many_outputs())
def test_u_bounds_the_divergence_from_uniform(outputs: Outputs) -> None:
    rounding = 1e-12 * float(1 + (outputs.norms[:, None] * outputs.similarities).abs().max())
    divergence = kl_uniform(outputs)
    assert (u(outputs) - math.log(outputs.K) <= divergence + rounding).all()
    assert (divergence <= u(outputs) + rounding).all()


@pytest.mark.parametrize("calibrator", sorted(set(CALIBRATORS) - {"shift-aware"}))  # it has laws of its own
@pytest.mark.parametrize("head", ["vanilla", "alpha-beta"])
def test_calibration_leaves_the_geometric_scores_bit_for_bit(calibrator: str, head: str) -> None:
    outputs = outputs_of(head, samples=80)
    before = [score(outputs) for score in (g, h, u)]
    fitted = CALIBRATORS[calibrator].fit(outputs, torch.arange(80) % 4)
    after = outputs._replace(logits=fitted(outputs))
    assert all(torch.equal(a, score(after)) for a, score in zip(before, (g, h, u), strict=True))


def test_against_scipy() -> None:
    outputs = outputs_of("alpha-beta")
    logits = outputs.logits.numpy()
    probabilities = special.softmax(logits, axis=1)
    assert msp(outputs).numpy() == pytest.approx(special.logit(probabilities.max(1)))
    assert energy(outputs).numpy() == pytest.approx(special.logsumexp(logits, axis=1))
    assert energy(outputs, 2.0).numpy() == pytest.approx(2 * special.logsumexp(logits / 2, axis=1))
    assert entropy(outputs).numpy() == pytest.approx(-np.log(stats.entropy(probabilities, axis=1)))
    plain = special.softmax((outputs.norms[:, None] * outputs.similarities).numpy(), axis=1)
    uniform = [[1 / outputs.K] * outputs.K] * outputs.N
    assert kl_uniform(outputs).numpy() == pytest.approx(stats.entropy(uniform, plain, axis=1))


def exact_measures(logits: list[float]) -> list[Decimal]:
    """The odds of the largest probability, 1/H and GEN's 1/Σ in 110 digits: no confidence here rounds to 1."""
    with localcontext() as context:
        context.prec = 110
        exact = [Decimal(value) for value in logits]
        weights = [(value - max(exact)).exp() for value in exact]
        p = [weight / sum(weights, Decimal(0)) for weight in weights]
        entropies = sum((-q * q.ln() for q in p), Decimal(0))
        shares = sum(((q * (1 - q)) ** Decimal("0.1") for q in p), Decimal(0))
        return [max(p) / (1 - max(p)), 1 / entropies, 1 / shares]


@given(st.integers(2, 6), st.floats(0.1, 30), st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=10)
def test_confidence_keeps_the_order_of_exact_probabilities(
    classes: int, scale: float, seed: int, dtype: torch.dtype
) -> None:
    """In float32 probabilities are 1 from a difference of 17 between logits on, and entropies 0 from 100 on."""
    logits = scale * torch.randn(5, classes, generator=torch.Generator().manual_seed(seed)).to(dtype)
    exact = zip(*map(exact_measures, logits.tolist()), strict=True)
    for score, expected in zip(CONFIDENCES, exact, strict=True):
        values, logs = score(Outputs.from_logits(logits)).double(), torch.tensor([float(one.ln()) for one in expected])
        torch.testing.assert_close(values, logs.double(), rtol=1e-5, atol=1e-5)
        apart = logs[:, None] > logs + 1e-4  # closer ones may change places by rounding
        assert (values[:, None] > values)[apart].all(), score


def test_sharp_logits_lose_no_auroc() -> None:
    """Temperature changes no order of the most probable of two classes, so it changes no AUROC."""
    inside, outside = (loc + features_of(2000, 1, seed).float() @ torch.tensor([[8.0, 0.0]]) for loc, seed in SIDES)
    for score in CONFIDENCES:
        expected = auroc(*(score(Outputs.from_logits(side.double())) for side in (inside, outside)))
        for factor in (1, 3, 30, 1000):
            found = auroc(*(score(Outputs.from_logits(factor * side)) for side in (inside, outside)))
            assert found == pytest.approx(expected, abs=1e-6), factor


@pytest.mark.parametrize("name", ["msp", "entropy", "gen"])
def test_the_slope_of_a_confidence_is_finite(name: str) -> None:
    """Of equal logits, of sure ones and of a class alone: ODIN's step follows it."""
    for rows in ([[1.0, 1.0, 1.0], [500.0, 0.0, 0.0], [1.0, 1.0, 0.0]], [[2.0]]):
        logits = torch.tensor(rows, requires_grad=True)
        SCORES[name](Outputs.from_logits(logits)).sum().backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()


def test_by_hand() -> None:
    outputs = Outputs(
        torch.tensor([[3.0, 4.0]]), torch.tensor([5.0]), torch.tensor([[0.6, 0.8]]), torch.ones(1, 2), torch.ones(1, 2)
    )
    assert (g(outputs).item(), h(outputs).item(), u(outputs).item()) == pytest.approx((5, 0.1, 0.5))
    assert max_similarity(outputs).item() == pytest.approx(0.8)


def test_a_temperature_of_energy_must_be_positive() -> None:
    with pytest.raises(ValueError, match="Expected `temperature` to be positive but got 0"):
        energy(outputs_of(), 0.0)
