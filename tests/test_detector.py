"""Detectors: the promise by counting and by simulation, parts that see only their own images, and what is saved."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import shiftprism
from shiftprism import Classifier, Outputs, predict
from shiftprism.classifier import Preprocessing
from shiftprism.datasets import load
from shiftprism.detector import Detector, count_allowed, count_needed
from shiftprism.heads import Linear
from shiftprism.shifts import make_shifted_copies
from shiftprism.verdicts import KINDS


@pytest.fixture(scope="module")
def digits() -> tuple[Classifier, Tensor, Tensor]:
    data = load("digits", "train")
    return Classifier.build("digits", "vanilla", data.names, 1, seed=1).eval(), data.images[:900], data.labels[:900]


@pytest.fixture(scope="module")
def detector(digits: tuple[Classifier, Tensor, Tensor]) -> Detector:
    classifier, images, labels = digits
    return Detector.fit(classifier, images[:600], labels[:600], copies=24)


def make_outputs(count: int, seed: int = 0, classes: int = 3) -> Outputs:
    torch.manual_seed(seed)
    head = Linear(5, classes)
    torch.manual_seed(seed + 1)
    return Outputs(*(field.detach() for field in head.outputs(torch.randn(count, 5))))


@given(st.integers(1, 400), st.floats(0.005, 0.5))
def test_alarms_are_allowed_by_counting(n: int, level: float) -> None:
    k = count_allowed(n, level)
    assert k / (n + 1) <= level + 1e-9 < (k + 1) / (n + 1) + 2e-9
    assert (k >= 1) == (n >= count_needed(level))


@given(st.integers(1, 400), st.floats(0.01, 0.5), st.floats(0.5, 0.99))
def test_confidence_is_that_of_a_beta_distribution(n: int, level: float, confidence: float) -> None:
    """The false-alarm rate of k of n + 1 ranks is the k-th smallest of n uniform numbers: a binomial tail says it."""
    k = count_allowed(n, level, confidence)
    # the k-th smallest uniform is below `level` if at least k of n are
    assert k == 0 or stats.binom.sf(k - 1, n, level) >= confidence - 1e-9
    assert stats.binom.sf(k, n, level) < confidence + 1e-9
    assert (k >= 1) == (n >= count_needed(level, confidence))


def test_false_alarms_stay_at_the_level() -> None:
    """Over fits to fresh exchangeable data: the mean is k/(n + 1), and at confidence .9 few fits exceed the level."""
    rates, sure = [], []
    for seed in range(60):
        outputs = make_outputs(2250, seed)
        found = Detector.from_outputs(outputs.rows(slice(250)), concept="gen", false_alarm=0.1, seed=seed)
        fresh = outputs.rows(slice(250, None))
        rates.append(float((found(fresh).kind != KINDS[0]).mean()))
        sure.append(float((found.at(confidence=0.9)(fresh).kind != KINDS[0]).mean()))
    expected = count_allowed(100, 0.1) / 101
    error = np.std(rates, ddof=1) / math.sqrt(len(rates))
    assert abs(np.mean(rates) - expected) < 3 * error
    assert np.mean(np.array(sure) > 0.1) < 0.1 + 3 * math.sqrt(0.09 / len(rates))
    assert np.mean(sure) < np.mean(rates)


def test_p_values_count_the_conformal_images(detector: Detector, digits: tuple[Classifier, Tensor, Tensor]) -> None:
    verdicts = detector(digits[1][600:650])
    for name, held in (("style", detector.held.style), ("concept", detector.held.concept)):
        among = held.double().numpy()
        counted = [(1 + (among <= value).sum()) / (len(among) + 1) for value in getattr(verdicts, name)]
        p = verdicts.p_covariate if name == "style" else verdicts.p_concept
        np.testing.assert_allclose(p, counted, rtol=1e-6)


def test_ranks_of_the_same_predicted_class_alone() -> None:
    outputs = make_outputs(1050)
    found = Detector.from_outputs(outputs.rows(slice(1000)), concept="gen", by_class=True)
    verdicts = found(outputs.rows(slice(1000, None)))
    held = found.held
    assert len(set(verdicts.label.tolist())) > 1
    for label, value, p in zip(verdicts.label, verdicts.concept, verdicts.p_concept, strict=True):
        among = held.concept[held.label == int(label)].double().numpy()
        assert p == pytest.approx((1 + (among <= value).sum()) / (len(among) + 1), rel=1e-6)


def test_by_class_says_which_class_is_short_of_images(detector: Detector) -> None:
    with pytest.raises(
        ValueError, match=r"at least 999 held-out images for the p-values at this level but got .* predicted as"
    ):
        detector.at(false_alarm=0.001, by_class=True)


def test_alarms_and_kinds_follow_from_the_p_values(
    detector: Detector, digits: tuple[Classifier, Tensor, Tensor]
) -> None:
    noise = torch.randint(0, 256, (200, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    verdicts = detector(torch.cat([digits[1][600:800], noise]))
    flagged = verdicts.p_combined <= 0.05
    assert 0 < flagged.sum() < len(flagged)
    assert (flagged == (verdicts.kind != KINDS[0])).all()
    assert ((verdicts.kind == "covariate") == (flagged & (verdicts.p_covariate <= 0.05))).all()
    assert (verdicts.kind[200:] == "covariate").mean() > 0.9


def test_each_part_sees_its_own_images_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker in each image says which part it is in: the three never overlap, and nothing fits to the last."""
    from shiftprism.detector import _detector, _fit

    outputs = make_outputs(300)
    seen: dict[str, Any] = {}

    def remember(fit: Any, ranks: Any, *rest: Any, **options: Any) -> Any:
        seen["fit"], seen["ranks"] = fit.outputs.features, ranks.outputs.features
        return original(fit, ranks, *rest, **options)

    original = _fit.fit_decision
    monkeypatch.setattr(_detector, "fit_decision", remember)
    found = Detector.from_outputs(outputs, concept="gen")
    rows = [{tuple(row) for row in part.tolist()} for part in seen.values()]
    everything = {tuple(row) for row in outputs.features.tolist()}
    assert not rows[0] & rows[1]
    rest = everything - rows[0] - rows[1]
    assert len(rest) == len(found.held.concept) == 120
    among = sorted(found.held.concept.tolist())
    left = [row in rest for row in map(tuple, outputs.features.tolist())]
    from shiftprism.scores import gen

    assert among == pytest.approx(sorted(gen(outputs.rows(left)).tolist()))


def test_the_conformal_part_is_drawn_without_regard_to_class() -> None:
    """A stratified part would hold every class in equal shares, so that new images were not exchangeable with it."""
    from shiftprism.detector._fit import divide

    labels = torch.arange(100) % 2
    counts = [int(labels[divide(100, labels, 0.05, None, seed).conformal].sum()) for seed in range(200)]
    # hypergeometric: 40 of 100, of which 50 are ones
    assert np.var(counts) == pytest.approx(40 * 0.25 * 60 / 99, rel=0.35)


@pytest.mark.parametrize(("count", "options", "needed"), [(49, {}, 50), (200, {"false_alarm": 0.01}, 248)])
def test_too_few_images_are_an_error_that_says_how_many(count: int, options: dict[str, float], needed: int) -> None:
    with pytest.raises(
        ValueError, match=f"at least {needed} held-out images for a false-alarm rate of .* but got {count}"
    ):
        Detector.from_outputs(make_outputs(count), concept="gen", **options)  # type: ignore[arg-type]
    Detector.from_outputs(make_outputs(needed), concept="gen", **options)  # type: ignore[arg-type]


def test_without_labels_it_is_uncalibrated(digits: tuple[Classifier, Tensor, Tensor]) -> None:
    classifier, images, _ = digits
    found = Detector.fit(classifier, images[:200], concept="gen", copies=8)
    verdicts = found(images[200:210])
    assert not verdicts.calibrated
    assert "uncalibrated" in str(verdicts[0])
    own = torch.softmax(predict(classifier, images[200:210])[0].logits, 1).amax(1)
    np.testing.assert_allclose(verdicts.confidence, own.numpy(), rtol=1e-5)


def test_confidence_is_the_calibrated_probability(
    detector: Detector, digits: tuple[Classifier, Tensor, Tensor]
) -> None:
    outputs = predict(digits[0], digits[1][600:620])[0]
    verdicts = detector(outputs)
    assert detector.calibrator is not None
    probabilities = detector.calibrator.probabilities(outputs)
    np.testing.assert_allclose(verdicts.confidence, probabilities.amax(1).numpy(), rtol=1e-4)
    assert verdicts.label.tolist() == outputs.predictions.tolist()


def test_images_and_their_outputs_give_the_same_verdicts(
    detector: Detector, digits: tuple[Classifier, Tensor, Tensor]
) -> None:
    images = digits[1][600:640]
    ours, theirs = detector(images), detector(predict(digits[0], images)[0])
    assert ours.to_dicts() == theirs.to_dicts()
    with pytest.raises(ValueError, match="made from Outputs"):
        Detector.from_outputs(make_outputs(100), concept="gen")(images)


def test_saved_and_loaded_it_decides_the_same(
    detector: Detector, digits: tuple[Classifier, Tensor, Tensor], tmp_path: Path
) -> None:
    detector.save(tmp_path / "d")
    back = Detector.load(tmp_path / "d")
    assert back.fingerprint() == detector.fingerprint()
    assert repr(back) == repr(detector)
    images = digits[1][600:650]
    assert back(images).to_dicts() == detector(images).to_dicts()
    sure = detector.at(false_alarm=0.2, confidence=0.9)
    sure.save(tmp_path / "d")
    back = Detector.load(tmp_path / "d")
    assert (back.false_alarm, back.confidence) == (0.2, 0.9)
    assert back(images).to_dicts() == sure(images).to_dicts()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3, "shiftprism": "9.0"}, "format 2 but got .* of format 3, written by shiftprism 9.0"),
        ({"format": 1}, "where format is 1; fit the detector again"),
        ({"style": "style-0"}, "statistics style-[0-9]+ but got .* with style-0, .*; fit the detector again"),
        ({"names": 7}, "where names is 7"),
        ({"concept": None}, "where concept is None"),
        ({"false_alarm": 7}, "where false_alarm is 7"),
        ({"false_alarm": 0.06}, "detector.json, which was changed; .* another level needs no fit"),
        ({"fingerprint": "0"}, "whose parts are not those it was saved with"),
    ],
)
def test_an_edited_description_is_refused(
    detector: Detector, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    detector.save(tmp_path)
    file = tmp_path / "detector.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        Detector.load(tmp_path)


@pytest.mark.parametrize("key", ["confidence", "false_alarm", "names", "model"])
def test_a_description_without_a_key_is_refused(detector: Detector, tmp_path: Path, key: str) -> None:
    detector.save(tmp_path)
    about = json.loads((tmp_path / "detector.json").read_text())
    del about[key]
    (tmp_path / "detector.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=f"where {key} is 'missing'"):
        Detector.load(tmp_path)


@pytest.mark.parametrize("name", ["model/weights.safetensors", "style/weights.safetensors", "ranks.safetensors"])
def test_a_flipped_byte_is_refused(detector: Detector, tmp_path: Path, name: str) -> None:
    detector.save(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[-3] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="Expected"):
        Detector.load(tmp_path)


def test_reference_counts_the_conformal_images(detector: Detector) -> None:
    reference = detector.reference()
    n = len(detector.held.style)
    assert reference.style_counts.sum() == reference.concept_counts.sum() == n
    assert reference.style_counts.sum(1).tolist() == torch.bincount(detector.held.label, minlength=10).tolist()
    values = detector.held.concept.double().numpy()
    edges = reference.concept_edges
    assert reference.concept_counts.sum(0)[0] == (values <= edges[0]).sum()
    assert reference.concept_counts.sum(0)[-1] == (values > edges[-1]).sum()
    assert (np.diff(edges) > 0).all()
    assert reference.points.shape == (min(n, 500), 2)
    assert reference.detector == detector.fingerprint()


def test_images_of_different_sizes_are_shifted_before_they_are_resized(
    digits: tuple[Classifier, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    from shiftprism.detector import _fit

    classifier, images, labels = digits
    classifier = copy.deepcopy(classifier)
    classifier.preprocessing = Preprocessing(size=(8, 8), resize=8, channels=1)
    sizes = [12 + number % 3 for number in range(150)]
    large = [
        F.interpolate(image[None].float(), (size, size)).round().to(torch.uint8)[0]
        for image, size in zip(images, sizes, strict=False)
    ]
    seen = set[tuple[int, ...]]()
    original = make_shifted_copies

    def remember(own: Tensor, *rest: Any, **options: Any) -> Any:
        seen.add(tuple(own.shape[2:]))
        return original(own, *rest, **options)

    monkeypatch.setattr(_fit, "make_shifted_copies", remember)
    found = Detector.fit(classifier, large, labels[:150], concept="gen", copies=6)
    assert seen == {(12, 12), (13, 13), (14, 14)}
    one_size = torch.stack([image for image in large if image.shape[1] == 12])
    prepared = torch.stack([classifier.prepare(image) for image in one_size])
    assert found(one_size).to_dicts() == found(prepared).to_dicts()
    with pytest.raises(ValueError, match=r"`images` to be uint8 tensors but got torch.float32"):
        Detector.fit(classifier, prepared)


def test_copies_of_other_rows_are_refused() -> None:
    outputs = make_outputs(100)
    with pytest.raises(ValueError, match="`shifted` to be 100 rows in each set but got 99 in blur"):
        Detector.from_outputs(outputs, shifted={"blur": make_outputs(99)}, concept="gen")


def test_it_is_a_public_name() -> None:
    assert shiftprism.Detector is Detector
