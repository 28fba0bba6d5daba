"""Every head, score and calibrator that a detector can have, beside torch: all of a kind in one converted graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from shiftprism.calibrators import CALIBRATORS
from shiftprism.detector import Decision, Detector
from shiftprism.detector._decision import Plain
from shiftprism.detector._fit import CANDIDATES
from shiftprism.export._convert import convert
from shiftprism.export._graphs import FIELDS, OUTPUTS, convert_decision
from shiftprism.heads import HEADS, Linear
from shiftprism.outputs import Outputs
from shiftprism.scores import SCORES, Fitted

D, K, S = 6, 4, 5
NAMES = tuple(f"class {number}" for number in range(K))


def make_outputs(rows: int, seed: int, shift: float = 0.0) -> Outputs:
    """What one linear head says about features, with some style beside it."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, D, generator=generator).relu() + shift
    style = torch.randn(rows, S, generator=generator) + shift
    with torch.no_grad():
        return HEAD.outputs(features)._replace(style=style)


torch.manual_seed(0)
HEAD = Linear(D, K).eval()
KNOWN, HELD = make_outputs(120, 0), make_outputs(60, 1)
SHIFTED, NEW = make_outputs(120, 2, 1.0), make_outputs(9, 3, 0.2)
LABELS = torch.arange(120) % K
CONCEPTS = sorted(name for name, entry in SCORES.items() if "style" not in entry.reads)


def fit_score(name: str) -> nn.Module | None:
    """As a detector fits it; None for those that it refuses, since they read the head again for every input."""
    if SCORES[name].ready:
        return Plain(name)
    score = SCORES[name].fit(KNOWN, LABELS, head=HEAD, reference=HELD)
    return score if isinstance(score, Fitted) else None


def fit_calibrator(name: str) -> nn.Module:
    kind: Any = CALIBRATORS[name]
    if kind.needs_shifted:
        return kind.fit(KNOWN, LABELS, shifted={"one": (SHIFTED, LABELS)})  # type: ignore[no-any-return]
    return kind.fit(KNOWN, LABELS)  # type: ignore[no-any-return]


def head_module(name: str) -> nn.Module:
    torch.manual_seed(1)
    return HEADS[name](D, K).eval()


class Together(nn.Module):
    """Several modules of the same inputs, one output each."""

    def __init__(self, parts: dict[str, nn.Module], call: Callable[[nn.Module, Outputs], Tensor]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts.values())
        self.call = call

    def forward(self, *fields: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.call(part, Outputs(*fields)) for part in self.parts)


def run_both(
    parts: dict[str, nn.Module], call: Callable[[nn.Module, Outputs], Tensor]
) -> dict[str, tuple[Tensor, Tensor]]:
    """By name what torch and onnxruntime say about new inputs, more of them than the exporter saw."""
    module = Together(parts, call)
    few = tuple(field[:3].contiguous() for field in NEW)
    session = onnxruntime.InferenceSession(convert(module, few, FIELDS, list(parts)).SerializeToString())
    taken = {each.name for each in session.get_inputs()}
    found = session.run(None, {n: f.numpy() for n, f in zip(FIELDS, NEW, strict=True) if n in taken})
    with torch.no_grad():
        expected = module(*NEW)
    order = [output.name for output in session.get_outputs()]
    return {name: (own, torch.from_numpy(found[order.index(name)])) for name, own in zip(parts, expected, strict=True)}


@pytest.fixture(scope="module")
def scores() -> dict[str, tuple[Tensor, Tensor]]:
    fitted = {name: score for name in CONCEPTS if (score := fit_score(name)) is not None}
    assert set(CANDIDATES) <= fitted.keys()
    return run_both(fitted, lambda score, outputs: score(outputs))


@pytest.fixture(scope="module")
def calibrators() -> dict[str, tuple[Tensor, Tensor]]:
    return run_both({name: fit_calibrator(name) for name in CALIBRATORS}, lambda one, outputs: one(outputs))


@pytest.fixture(scope="module")
def heads() -> dict[str, tuple[Tensor, Tensor]]:
    def call(head: Any, outputs: Outputs) -> Tensor:
        found = head.outputs(outputs.features)
        return torch.cat([found.norms[:, None], found.similarities, found.raw, found.logits], 1)

    return run_both({name: head_module(name) for name in HEADS}, call)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONCEPTS)
def test_a_concept_score_exports(scores: dict[str, tuple[Tensor, Tensor]], name: str) -> None:
    if name not in scores:
        with pytest.raises(ValueError, match="reads the head again for every input"):
            Detector.from_outputs(KNOWN, LABELS, concept=name, head=HEAD, false_alarm=0.1)
        return
    torch.testing.assert_close(scores[name][1], scores[name][0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CALIBRATORS))
def test_a_calibrator_exports(calibrators: dict[str, tuple[Tensor, Tensor]], name: str) -> None:
    own, found = (torch.softmax(each, 1) for each in calibrators[name])
    torch.testing.assert_close(found, own, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HEADS))
def test_a_head_exports(heads: dict[str, tuple[Tensor, Tensor]], name: str) -> None:
    torch.testing.assert_close(heads[name][1], heads[name][0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"by_class": True, "false_alarm": 0.2, "shifted": True, "labels": True},
        {"confidence": 0.8, "false_alarm": 0.2},
    ],
    ids=["by class, calibrated, with style", "a confidence, no labels, no style"],
)
def test_a_decision_exports(options: dict[str, Any]) -> None:
    options = dict(options)
    labels = torch.arange(400) % K if options.pop("labels", False) else None
    known = make_outputs(400, 5)
    if options.pop("shifted", False):
        options["shifted"] = {"one": make_outputs(400, 6, 1.0)}
    detector = Detector.from_outputs(known, labels, head=HEAD, concept="energy", **options)
    new = Outputs.concat([make_outputs(60, 7), make_outputs(60, 8, 0.7)])
    session = onnxruntime.InferenceSession(convert_decision(detector.decision, new).SerializeToString())
    taken = {each.name for each in session.get_inputs()}
    inputs = {name: field.numpy() for name, field in zip(FIELDS, new, strict=True) if name in taken}
    found = dict(zip(OUTPUTS, session.run(list(OUTPUTS), inputs), strict=True))
    own = detector.decide(new)._asdict()
    assert len(set(own["kind"].tolist())) > 1
    for name in ("label", "kind"):
        assert found[name].tolist() == own[name].tolist()
    for name in ("probabilities", "style", "concept", "p_covariate", "p_concept", "p_combined"):
        np.testing.assert_allclose(found[name], own[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_ranks_of_a_class_count_its_own_images() -> None:
    detector = Detector.from_outputs(make_outputs(400, 5), concept="energy", by_class=True, false_alarm=0.2)
    decision: Decision = detector.decision
    held, new = detector.held, make_outputs(30, 9)
    own = decision.concept(new)
    label = new.predictions
    for row in range(30):
        same = held.concept[held.label == label[row]]
        expected = (1 + int((same <= own[row]).sum())) / (len(same) + 1)
        assert float(decision.concept_ranks(own, label)[row]) == pytest.approx(expected)
