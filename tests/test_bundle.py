"""The evidence inside the package is whole, small, and says what its models said."""

from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from shiftprism import benchmark, metrics, scores
from shiftprism.benchmark._bundle import read_bundle, write_bundle
from shiftprism.classifier import predict
from trained import digits, trained_on_digits, unseen_digits


def test_the_package_carries_two_models_and_no_images() -> None:
    path = Path(str(files("shiftprism.benchmark").joinpath("cifar10.safetensors")))
    assert path.stat().st_size < 6_000_000
    tensors = load_file(path)
    assert {name.split("/")[2] for name in tensors} == {"norms", "similarities", "logits", "labels"}
    assert all(tensor.ndim < 3 for tensor in tensors.values())
    found = benchmark.bundled()
    assert [(one.source.model, one.source.data) for one in found] == [("vanilla", "cifar10"), ("alpha-beta", "cifar10")]
    for one in found:
        assert one.clean.check().N == 2000
        assert {shift.kind for shift, _, _ in one.shifted} == {"concept", "both", "covariate"}
        assert len(one.shifted) == 3 + 15 * 3
        assert (one.clean.predictions == one.labels).float().mean() > 0.89


def test_the_alpha_beta_model_shows_the_effect_of_the_paper() -> None:
    """One network of each head: g sees the corrupted, h the unseen classes, and U of α-β sees SVHN best."""
    vanilla, ours = benchmark.bundled()
    rows = [row for one in (vanilla, ours) for row in benchmark.measure(one).rows if row.metric == "auroc"]
    found = {(row.model, row.shift, row.subject): row.value for row in rows if not row.severity}
    assert found["alpha-beta", "corrupted", "g"] > found["alpha-beta", "corrupted", "h"]
    assert found["alpha-beta", "cifar100", "h"] > found["alpha-beta", "cifar100", "g"]
    best = max(value for (model, shift, _), value in found.items() if (model, shift) == ("vanilla", "svhn"))
    assert found["alpha-beta", "svhn", "u"] > best


def test_a_bundle_says_what_the_model_said(tmp_path: Path) -> None:
    classifier, _ = trained_on_digits("alpha-beta")
    test, held = digits("test"), digits("train").rows(slice(0, 300))
    unseen = test._replace(images=unseen_digits(), labels=torch.zeros(len(unseen_digits()), dtype=torch.long))
    source = benchmark.Source("alpha-beta", "digits", "digits", "alpha-beta", 0, "held-out", "0" * 12)
    shift = benchmark.bundled()[0].shifted[0][0]._replace(make=lambda: unseen)
    evidence = benchmark.gather(source, classifier, held, test, [shift])
    write_bundle(tmp_path / "file", [(evidence, predict(classifier, held)[0], held.labels)], "a test")
    (again,) = read_bundle(tmp_path / "file")
    assert again.source == source
    assert torch.equal(again.labels, test.labels)
    for before, after in ((evidence.clean, again.clean), (evidence.shifted[0][1], again.shifted[0][1])):
        for score in (scores.g, scores.h, scores.u, scores.msp):
            torch.testing.assert_close(score(after), score(before), rtol=5e-3, atol=5e-3)
    exact, half = (metrics.auroc(scores.u(one.clean), scores.u(one.shifted[0][1])) for one in (evidence, again))
    assert half == pytest.approx(exact, abs=2e-3)
    with pytest.raises(ValueError, match="one whose images are at hand"):
        again.shifted[0][0].make()


def test_a_bias_is_refused(tmp_path: Path) -> None:
    one = benchmark.bundled()[0]
    biased = one._replace(clean=one.clean._replace(raw=one.clean.raw + 1))
    with pytest.raises(ValueError, match="heads without a bias"):
        write_bundle(tmp_path / "file", [(biased, one.clean, one.labels)], "")
    assert not (tmp_path / "file").exists()
