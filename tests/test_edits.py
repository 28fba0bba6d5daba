"""Edits: each against a plain NumPy reading of its paper, the laws that hold at their neutral settings, and exports."""

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from examples import features_of, head_of, outputs_of
from shiftprism import scores
from shiftprism.classifier import Classifier, predict
from shiftprism.edits import (
    EPSILONS,
    Dice,
    ReAct,
    ash,
    average,
    choose_epsilon,
    expected_entropy,
    mutual_information,
    odin,
    odin_score,
    perturb,
    predictive_entropy,
    scale,
)
from shiftprism.heads import HEADS, Linear
from shiftprism.outputs import Outputs

Array = NDArray[np.float64]
LINEAR = ("vanilla", "alpha", "beta", "alpha-beta", "gsd", "inner")
EDITS: dict[str, Callable[[Outputs, Linear], Outputs]] = {
    "react": lambda o, head: ReAct.fit(o, head=head, percentile=70)(o),
    "dice": lambda o, head: Dice.fit(o, head=head, sparsity=0.5)(o),
    "ash-s": lambda o, head: ash(o, head=head),
    "ash-p": lambda o, head: ash(o, head=head, kind="p"),
    "ash-b": lambda o, head: ash(o, head=head, kind="b"),
    "scale": lambda o, head: scale(o, head=head),
}


def linear(features: int = 12, classes: int = 4, bias: bool = True) -> Linear:
    torch.manual_seed(3)
    return Linear(features, classes, bias=bias).double().eval()


def outputs_for(head: Linear, samples: int = 30, seed: int = 5) -> Outputs:
    with torch.no_grad():
        return head.outputs(features_of(samples, head.in_features, seed))


def by_hand(name: str, row: Array, known: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    """One input's (edited features, logits), written out from the papers."""
    if name == "react":
        ordered = np.sort(known.ravel())
        place = 0.7 * (len(ordered) - 1)
        below = math.floor(place)
        cut = ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])
        row = np.where(row > cut, cut, row)
    if name == "dice":
        contribution = np.array([[w * known[:, d].mean() for d, w in enumerate(line)] for line in weight])
        weight = np.where(contribution > np.percentile(contribution, 50), weight, 0.0)
    if name in ("ash-s", "ash-p", "ash-b", "scale"):
        share = 0.85 if name == "scale" else 0.65
        count = len(row) - round(len(row) * share)
        top = sorted(range(len(row)), key=lambda d: -row[d])[:count]
        pruned = np.array([value if d in top else 0.0 for d, value in enumerate(row)])
        factor = np.exp(row.sum() / pruned.sum())
        filled = np.array([row.sum() / count if d in top else 0.0 for d in range(len(row))])
        row = {"ash-s": pruned * factor, "ash-p": pruned, "ash-b": filled, "scale": row * factor}[name]
    return row, weight @ row + bias


@pytest.mark.parametrize("name", EDITS)
def test_agrees_with_a_plain_reading_of_the_paper(name: str) -> None:
    head = linear()
    outputs = outputs_for(head)
    with torch.no_grad():
        edited = EDITS[name](outputs, head).check()
    known, weight = outputs.features.numpy(), head.weight.detach().numpy()
    bias = head.get_parameter("bias").detach().numpy()
    for number, row in enumerate(known):
        features, logits = by_hand(name, row, known, weight, bias)
        np.testing.assert_allclose(edited.features[number], features, rtol=1e-12)
        np.testing.assert_allclose(edited.logits[number], logits, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(edited.norms, np.linalg.norm(edited.features.numpy(), axis=1), rtol=1e-12)


@pytest.mark.parametrize("head_name", LINEAR)
@pytest.mark.parametrize("name", EDITS)
def test_every_linear_head_is_asked_again(name: str, head_name: str) -> None:
    head, outputs = head_of(head_name), outputs_of(head_name)
    edited = EDITS[name](outputs, head).check()  # type: ignore[arg-type]
    assert not torch.equal(edited.logits, outputs.logits)
    if name != "dice":
        torch.testing.assert_close(head.outputs(edited.features).logits, edited.logits)


def test_neutral_settings_change_nothing() -> None:
    for name in LINEAR:
        head, outputs = head_of(name), outputs_of(name)
        for same in (
            ReAct.fit(outputs, head=head, percentile=100)(outputs),
            Dice.fit(outputs, head=head, sparsity=0)(outputs),
            ash(outputs, head=head, kind="p", percentile=0),
        ):
            assert all(torch.equal(after, before) for after, before in zip(same, outputs, strict=True))


def test_feature_edits_keep_the_style_and_an_ensemble_drops_it() -> None:
    head = linear()
    outputs = outputs_for(head)._replace(style=torch.rand(30, 5))
    edits = [ReAct.fit(outputs, head=head), Dice.fit(outputs, head=head)]
    edited = [edit(outputs) for edit in edits] + [ash(outputs, head=head), scale(outputs, head=head)]
    assert all(each.style.equal(outputs.style) for each in edited)
    assert not average([outputs, outputs]).has_style


def test_percentile_0_multiplies_by_e_or_puts_the_mean() -> None:
    head = linear()
    outputs = outputs_for(head)
    for edited in (ash(outputs, head=head, percentile=0), scale(outputs, head=head, percentile=0)):
        torch.testing.assert_close(edited.features, outputs.features * math.e)
    flat = ash(outputs, head=head, kind="b", percentile=0).features
    torch.testing.assert_close(flat, outputs.features.mean(1, keepdim=True).expand_as(flat))


def test_scale_keeps_directions_and_dice_keeps_norms() -> None:
    head = linear(bias=False)
    outputs = outputs_for(head)
    torch.testing.assert_close(scores.h(scale(outputs, head=head)), scores.h(outputs))
    assert torch.equal(scores.g(EDITS["dice"](outputs, head)), scores.g(outputs))


@given(
    name=st.sampled_from(sorted(EDITS)),
    power=st.integers(-12, 12),
    seed=st.integers(0, 99),
    percentile=st.floats(0, 99.9),
)
def test_zero_and_huge_features_stay_finite(name: str, power: int, seed: int, percentile: float) -> None:
    head = linear()
    values = features_of(5, 12, seed, 10.0**power)
    values[0] = 0
    with torch.no_grad():
        outputs = head.outputs(values)
        EDITS[name](outputs, head).check()
        ash(outputs, head=head, percentile=percentile).check()
        scale(outputs, head=head, percentile=percentile).check()


def test_a_tiny_part_left_of_many_features_is_no_overflow() -> None:
    head = Linear(900, 3)
    outputs = head.outputs(torch.ones(2, 900))  # exp(s₁/s₂) would be exp(900)
    edited = ash(outputs, head=head, percentile=99.9)
    assert int((edited.features > 0).sum(1).max()) == 1
    edited.check()


def test_the_head_is_copied_and_asked_in_evaluation_mode() -> None:
    head = HEADS["inner"](6, 4).train()
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    outputs = outputs_of("inner").to(torch.float32)
    one = ash(outputs, head=head)
    torch.testing.assert_close(ash(outputs.rows([3]), head=head).logits, one.logits[3:4])
    assert head.training
    plain = Linear(6, 4)
    own = plain.outputs(outputs.features)
    fitted = Dice.fit(own, head=plain, sparsity=0.5)
    assert float((plain.weight == 0).sum()) == 0 < float((fitted.head.get_parameter("weight") == 0).sum())
    assert not any(parameter.requires_grad for parameter in fitted.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in head.state_dict().items())


@pytest.mark.parametrize("kind", [ReAct, Dice])
def test_fitted_edits_save_and_export(kind: type[ReAct] | type[Dice]) -> None:
    head = linear().float()
    outputs = float_outputs_for(head)
    fitted = kind.fit(outputs, head=head)
    empty = kind.fit(float_outputs_for(head, 8), head=head)
    empty.load_state_dict(fitted.state_dict())
    assert torch.equal(empty(outputs).logits, fitted(outputs).logits)
    program = export(fitted, outputs)
    for after, before in zip(program(outputs), fitted(outputs), strict=True):
        torch.testing.assert_close(after, before)


def float_outputs_for(head: Linear, samples: int = 30) -> Outputs:
    with torch.no_grad():
        return head.outputs(features_of(samples, head.in_features, 5).float())


def export(module: nn.Module, outputs: Outputs) -> nn.Module:
    """The module as a graph made from seven rows, for any number of them."""
    rows: Any = {0: torch.export.Dim("batch", min=2)}
    shapes = (Outputs(*(rows,) * 6),)
    return torch.export.export(module, (outputs.rows(slice(0, 7)),), dynamic_shapes=shapes).module()


def test_ash_and_scale_export() -> None:
    class Edited(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = linear().float()

        def forward(self, outputs: Outputs) -> Tensor:
            return scores.energy(scale(ash(outputs, head=self.head), head=self.head))

    edited = Edited().eval()
    outputs = float_outputs_for(edited.head)
    torch.testing.assert_close(export(edited, outputs)(outputs), edited(outputs))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o, h: ash(o, head=h, kind="z"), "`kind` to be one of b, p, s"),
        (lambda o, h: ash(o, head=h, percentile=100), "`percentile` to be from 0 to below 100"),
        (lambda o, h: scale(o, head=h, percentile=float("nan")), "`percentile`"),
        (lambda o, h: ReAct.fit(o, head=h, percentile=101), "`percentile` to be from 0 to 100"),
        (lambda o, h: Dice.fit(o, head=h, sparsity=1), "`sparsity` to be from 0 to below 1"),
        (
            lambda o, h: ash(o, head=cast(Any, nn.Linear(12, 4))),
            "`head` to be a shiftprism head of 12 features but got Linear",
        ),
        (lambda o, h: ash(o, head=linear(5)), "`head` to be a shiftprism head of 12 features but got one of 5"),
        (lambda o, h: scale(o._replace(features=-o.features), head=h), "features that are not negative"),
        (lambda o, h: Dice.fit(o, head=linear(12, 4, bias=False)), "`head` to be the one these Outputs came from"),
        (lambda o, h: Dice.fit(o, head=head_of("euclidean", 12)), "`head` to be the one these Outputs came from"),
        (lambda o, h: ash(Outputs.from_logits(o.logits), head=h), "made by a classifier, with features"),
        (lambda o, h: ash(o.rows(slice(0, 0)), head=h), "`outputs` to be non-empty"),
        (lambda o, h: average([]), "`members` to be the Outputs of one model or more but got none"),
        (
            lambda o, h: average(cast(Any, [o.logits])),
            "`members` to be the Outputs of one model or more but got Tensor",
        ),
        (lambda o, h: average([o, o.rows([0])]), "`members` to be of the same inputs and classes"),
        (lambda o, h: odin_score(0), "`temperature` to be positive"),
    ],
)
def test_bad_input_is_refused_at_the_door(call: Callable[[Outputs, Linear], object], message: str) -> None:
    head = linear()
    with pytest.raises(ValueError, match=f"Expected .*{message}"):
        call(outputs_for(head), head)


# Ensembles


def members(count: int = 3, samples: int = 20, spread: float = 2.0) -> list[Outputs]:
    generator = torch.Generator().manual_seed(0)
    drawn = spread * torch.randn(count, samples, 5, dtype=torch.float64, generator=generator)
    return [Outputs.from_logits(logits) for logits in drawn]


def test_an_ensemble_agrees_with_scipy() -> None:
    parts = members()
    probabilities = np.stack([torch.softmax(part.logits, 1).numpy() for part in parts])
    mean = probabilities.mean(0)
    np.testing.assert_allclose(average(parts).logits.exp(), mean, rtol=1e-12)
    np.testing.assert_allclose(predictive_entropy(parts), stats.entropy(mean, axis=1), rtol=1e-12)
    np.testing.assert_allclose(expected_entropy(parts), stats.entropy(probabilities, axis=2).mean(0), rtol=1e-12)
    torch.testing.assert_close(scores.entropy(average(parts)), -predictive_entropy(parts).log())


def test_one_member_is_itself() -> None:
    (alone,) = members(1)
    torch.testing.assert_close(torch.softmax(average([alone]).logits, 1), torch.softmax(alone.logits, 1))
    assert float(mutual_information([alone]).abs().max()) == 0
    assert not average([alone]).has_features


@given(count=st.integers(1, 6), power=st.integers(-3, 30), seed=st.integers(0, 99))
def test_the_doubt_splits_in_two(count: int, power: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, 6, 4, dtype=torch.float64, generator=generator) * 10.0**power
    parts = [Outputs.from_logits(logits) for logits in drawn]
    together, shared, apart = predictive_entropy(parts), expected_entropy(parts), mutual_information(parts)
    assert bool((apart >= 0).all())
    assert bool((apart <= math.log(min(count, 4)) + 1e-9).all())
    torch.testing.assert_close(apart, together - shared, rtol=1e-9, atol=1e-12)
    average(parts).check()


# Images


class Plane(nn.Module):
    """A backbone whose derivatives are known: f = relu(A x) of the flattened image."""

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 6
        generator = torch.Generator().manual_seed(1)
        self.map = nn.Parameter(torch.randn(16, 6, generator=generator))

    def forward(self, images: Tensor) -> Tensor:
        return (images.flatten(1) @ self.map).relu()


def model(std: float = 0.25) -> Classifier:
    torch.manual_seed(2)
    return Classifier(Plane(), Linear(6, 3), (0.5,), (std,)).eval()


def pictures(samples: int = 8) -> Tensor:
    return 0.1 + 0.8 * torch.rand(samples, 1, 4, 4, generator=torch.Generator().manual_seed(4))


def test_the_step_is_the_sign_of_a_gradient_worked_by_hand() -> None:
    classifier, images = model(), pictures()
    head, backbone = classifier.head, classifier.backbone
    a = backbone.get_parameter("map").detach().double().numpy()
    w = head.get_parameter("weight").detach().double().numpy()
    x = (images.double().numpy().reshape(8, 16) - 0.5) / 0.25
    moved = perturb(classifier, images, scores.max_logit, 0.02)
    for number in range(8):
        hidden = x[number] @ a
        top = int(np.argmax(w @ np.maximum(hidden, 0)))
        gradient = a @ (w[top] * (hidden > 0))  # ∂ max_k l_k / ∂x, up to the positive 1/std
        expected = images[number].flatten().numpy() + 0.02 * np.where(gradient >= 0, 1, -1)
        np.testing.assert_allclose(moved[number].flatten(), expected, atol=1e-6)


def test_a_step_goes_up_and_stays_in_the_image() -> None:
    classifier, images = model(), pictures()
    before = scores.energy(predict(classifier, images)[0])
    after = scores.energy(predict(classifier, perturb(classifier, images, scores.energy, 0.001))[0])
    alive = predict(classifier, images)[0].norms > 0
    assert int(alive.sum()) > 5
    assert bool((after > before)[alive].all())
    moved = perturb(classifier, images, scores.energy, 0.5)
    assert (float(moved.min()), float(moved.max())) == (0, 1)


def test_epsilon_in_pixels_is_published_epsilon_over_std() -> None:
    classifier, images = model(), pictures()
    moved = classifier.normalise(perturb(classifier, images, scores.msp, 0.01)) - classifier.normalise(images)
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, 0.01 / 0.25), rtol=1e-3, atol=0)


def test_no_gradient_counts_as_up() -> None:
    images = torch.full((1, 1, 4, 4), 0.5)  # f = 0, where the derivative of |f| is 0
    assert torch.equal(perturb(model(), images, scores.g, 0.25), images + 0.25)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_epsilon_0_changes_nothing_bit_for_bit(dtype: torch.dtype) -> None:
    classifier = model()
    images = (pictures() * 255).to(torch.uint8) if dtype == torch.uint8 else pictures()
    same = perturb(classifier, images, scores.msp, 0)
    assert all(torch.equal(a, b) for a, b in zip(classifier.outputs(same), classifier.outputs(images), strict=True))


def test_perturbing_leaves_the_model_alone_and_batches_do_not_matter() -> None:
    classifier, images = model().train(), pictures()
    with torch.no_grad():
        whole = perturb(classifier, images, scores.energy, 0.01)
    assert torch.equal(perturb(classifier, images, scores.energy, 0.01, batch=3), whole)
    assert classifier.training
    assert all(parameter.grad is None for parameter in classifier.parameters())


def test_an_edit_may_stand_before_the_score() -> None:
    classifier, images = model(), pictures()
    react = ReAct.fit(predict(classifier, images)[0], head=classifier.head, percentile=80)
    moved = perturb(classifier, images, lambda outputs: scores.energy(react(outputs)), 0.01)
    assert not torch.equal(moved, perturb(classifier, images, scores.energy, 0.01))


def test_epsilon_is_the_one_with_the_highest_mean_score() -> None:
    classifier, images = model(), pictures()
    # 1 at |f| = target and less on either side: stepping up to it and not beyond has an optimum inside
    target = scores.g(predict(classifier, images)[0]).mean() * 1.05

    def near(outputs: Outputs) -> Tensor:
        return -(outputs.norms - target).abs()

    means = {e: float(near(predict(classifier, perturb(classifier, images, near, e))[0]).mean()) for e in EPSILONS}
    best = choose_epsilon(classifier, images, near, batch=3)
    assert best == max(means, key=lambda e: means[e])
    assert 0 < best < EPSILONS[-1]
    assert choose_epsilon(classifier, images, scores.g, (0.01, 0.02)) == 0.02
    assert choose_epsilon(classifier, images, lambda o: 0 * o.norms) == 0


def test_a_score_of_moved_images_reads_the_style_of_the_unmoved() -> None:
    classifier, images = model(), pictures()
    seen = []

    def score(outputs: Outputs) -> Tensor:
        seen.append(outputs.style)
        return scores.energy(outputs)

    choose_epsilon(classifier, images, score, (0.0, 0.04))
    assert len(seen) == 3
    assert all(style.equal(classifier.outputs(images).style) for style in seen)


def test_odin_is_the_tempered_softmax_after_its_step() -> None:
    classifier, images = model().double(), pictures().double()
    asked = images.clone().requires_grad_()
    label = classifier(asked).argmax(1)
    nn.functional.cross_entropy(classifier(asked) / 1000, label, reduction="sum").backward()
    assert asked.grad is not None
    moved = images - 0.0014 * asked.grad.sign()
    expected = torch.softmax(classifier(moved) / 1000, 1).amax(1).log() + math.log(3)
    torch.testing.assert_close(odin(classifier, images), expected, rtol=1e-9, atol=1e-12)


def test_odin_keeps_apart_in_float32_what_softmax_would_tie() -> None:
    logits = torch.linspace(0, 0.003, 50)[:, None] * torch.tensor([1.0, 0.0, 0.0])
    assert len(torch.softmax(logits / 1000, 1).amax(1).unique()) < 25
    assert len(odin_score()(Outputs.from_logits(logits)).unique()) == 50


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, x: perturb(c, x, scores.msp, -0.1), "`epsilon` to be from 0 to 1"),
        (lambda c, x: perturb(c, x, scores.msp, float("nan")), "`epsilon`"),
        (lambda c, x: perturb(c, x * 255, scores.msp, 0.1), r"`images` to be in \[0, 1\]"),
        (lambda c, x: perturb(c, x, lambda o: o.norms.detach(), 0.1), "`score` to be differentiable"),
        (lambda c, x: choose_epsilon(c, x, scores.msp, ()), "`epsilons` to be non-empty"),
        (lambda c, x: odin(c, x, temperature=-1), "`temperature` to be positive"),
    ],
)
def test_bad_images_are_refused_at_the_door(call: Callable[[Classifier, Tensor], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected .*{message}"):
        call(model(), pictures())
