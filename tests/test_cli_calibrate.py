"""`shiftprism calibrate` as a person meets it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from examples import outputs_of
from shiftprism.calibrators import AlphaBeta, Temperature, load
from shiftprism.classifier import Classifier, predict
from shiftprism.cli import app
from shiftprism.cli.calibrate import _list_warnings
from shiftprism.datasets import load as load_data


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, words)])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    names = load_data("digits", "test").names
    Classifier.build("digits", "alpha-beta", names, channels=1).save(folder)
    return folder


def test_a_saved_run(model: Path) -> None:
    done = run(model, "--method", "alpha-beta", "--data", "digits", "--split", "test")
    assert done.exit_code == 0, done.output
    fitted = load(model / "calibrators" / "alpha-beta", model=Classifier.load(model).fingerprint())
    assert isinstance(fitted, AlphaBeta)
    assert f"{fitted.report.nll_before:.4f}" in done.output
    assert f"{fitted.report.nll_after:.4f}" in done.output
    assert "ECE" in done.output
    data = load_data("digits", "test")
    outputs, _ = predict(Classifier.load(model), data)
    assert torch.equal(fitted(outputs), AlphaBeta.fit(outputs, data.labels)(outputs))


def test_the_held_out_part_of_the_training_data(model: Path) -> None:
    (model / "config.toml").write_text('data = "digits"\nheld_out = 0.1\n')
    done = run(model, "--method", "temperature")
    (model / "config.toml").unlink()
    assert done.exit_code == 0, done.output
    held = load_data("digits", "train").hold_out(0.1)[1]
    assert f"fitted to {len(held.labels)} samples of digits (held-out)" in done.output


@pytest.mark.parametrize("key", ["logits", "probabilities"])
def test_arrays_of_a_model_trained_anywhere(key: str, tmp_path: Path) -> None:
    logits = outputs_of(samples=100).logits
    values = logits if key == "logits" else torch.softmax(logits, 1)
    labels = np.arange(100) % 4
    arrays: dict[str, Any] = {key: values.numpy(), "labels": labels}
    np.savez(tmp_path / "mine.npz", **arrays)
    done = run("--logits", tmp_path / "mine.npz")
    assert done.exit_code == 0, done.output
    fitted = load(tmp_path / "mine" / "temperature")
    assert isinstance(fitted, Temperature)
    assert float(fitted.temperature) == pytest.approx(
        float(Temperature.fit(logits=logits, labels=labels).temperature), rel=1e-4
    )


@pytest.mark.parametrize("samples", [100, 3000])
def test_held_out_numbers_are_printed_and_few_samples_warned_of(samples: int, tmp_path: Path) -> None:
    """With 3,000 samples and a large gain the fit needs no folds; the command computes the numbers all the same."""
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(samples, 4, generator=generator)
    labels = torch.multinomial(torch.softmax(true, 1), 1, generator=generator).squeeze(1)
    np.savez(tmp_path / "mine.npz", logits=3 * true.numpy(), labels=labels.numpy())
    done = run("--logits", tmp_path / "mine.npz")
    assert done.exit_code == 0, done.output
    before, after = (line.split() for line in done.output.splitlines() if line.startswith(("before", "after")))
    assert len(before) == len(after) == 6
    assert float(after[2]) <= float(after[4]) < float(before[4])
    assert ("Warning: 100 samples are few" in done.output) == (samples == 100)
    assert "rises" not in done.output


def test_what_rises_on_held_out_folds_is_warned_of(tmp_path: Path) -> None:
    """A temperature that helps the NLL clearly, and harms the ECE: one class of three needs another scale."""
    generator = torch.Generator().manual_seed(27)
    true = 1.5 * torch.randn(600, 3, generator=generator)
    labels = torch.multinomial(torch.softmax(true, 1), 1, generator=generator)[:, 0]
    logits = true * torch.tensor([1, 1, 1.6]) + torch.tensor([0, 0, 0.5])
    np.savez(tmp_path / "mine.npz", logits=logits.numpy(), labels=labels.numpy())
    done = run("--logits", tmp_path / "mine.npz")
    report = load(tmp_path / "mine" / "temperature").report
    before, after = report.held_out_ece_before, report.held_out_ece_after
    assert after > before
    assert f"Warning: on held-out folds the ECE rises from {before:.4f} to {after:.4f}." in done.output
    assert "the NLL rises" not in done.output


def test_every_measure_that_rises_is_warned_of() -> None:
    held_out = {"before": (0.1, 0.02), "after": (0.2, 0.03)}
    assert _list_warnings(outputs_of(samples=500), held_out) == [
        "on held-out folds the NLL rises from 0.1000 to 0.2000.",
        "on held-out folds the ECE rises from 0.0200 to 0.0300.",
    ]
    assert _list_warnings(outputs_of(samples=500), {"before": (0.1, 0.02), "after": (0.1, 0.02)}) == []


@pytest.mark.parametrize("extra", [("norms",), ("features",), ("norms", "features", "raw")])
def test_alpha_beta_from_arrays(extra: tuple[str, ...], tmp_path: Path) -> None:
    outputs = outputs_of("alpha-beta" if "raw" in extra else "vanilla", samples=100)
    arrays: dict[str, Any] = {name: getattr(outputs, name).numpy() for name in ("logits", *extra)}
    np.savez(tmp_path / "mine.npz", labels=np.arange(100) % 4, **arrays)
    done = run("--logits", tmp_path / "mine.npz", "--method", "alpha-beta", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    expected = AlphaBeta.fit(outputs, np.arange(100) % 4)
    torch.testing.assert_close(load(tmp_path / "out")(outputs), expected(outputs), atol=1e-5, rtol=1e-5)


def test_what_is_wrong_is_said(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", logits=np.zeros((4, 2)))
    np.savez(tmp_path / "odd.npz", logits=np.zeros((4, 2)), labels=np.zeros(4, int), speed=np.ones(3))
    np.savez(tmp_path / "pickled.npz", logits=np.array([object()]), labels=np.zeros(1, int))
    np.savez(tmp_path / "raw.npz", logits=np.zeros((4, 2)), labels=np.zeros(4, int), raw=np.zeros((4, 2)))
    np.savez(tmp_path / "good.npz", logits=np.zeros((4, 2)), labels=np.zeros(4, int))
    (tmp_path / "text.npz").write_text("no")
    wrong = {
        "given, or --logits in its place, but got neither": (),
        "but got both": (model, "--logits", tmp_path / "good.npz"),
        "Expected `method` to be one of": (model, "--method", "magic"),
        "add --data NAME": (model, "--force"),
        "training held out none of these data": (model, "--data", "digits", "--split", "held-out", "--force"),
        "Expected `split` to be one of": (model, "--data", "digits", "--split", "some", "--force"),
        "Expected `folder` to be a saved model": (tmp_path / "nothing", "--data", "digits"),
        "labels and either logits or probabilities": ("--logits", tmp_path / "bare.npz"),
        "norms or features beside raw": ("--logits", tmp_path / "raw.npz"),
        "speed": ("--logits", tmp_path / "odd.npz"),
        "an .npz file of plain arrays": ("--logits", tmp_path / "pickled.npz"),
        "text.npz": ("--logits", tmp_path / "text.npz"),
        "absent.npz": ("--logits", tmp_path / "absent.npz"),
        "made from logits alone": ("--logits", tmp_path / "good.npz", "--method", "alpha-beta"),
    }
    for message, words in wrong.items():
        done = run(*words)
        assert done.exit_code != 0, words
        assert message in str(done.exception), (words, done.exception)
