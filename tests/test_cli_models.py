"""An own model in every command that takes a run: its code is named by --model, and every error is a line."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from shiftprism import Classifier, adapt, predict
from shiftprism.calibrators import Temperature, load
from shiftprism.classifier import Preprocessing
from shiftprism.cli import main
from shiftprism.cli._models import load_model, predict_files
from shiftprism.rows import Results

CODE = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(6, 2))

def broken():
    raise RuntimeError("no weights\\nhere")
"""
NAMES = ("bright", "dark")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of code, a model made by it, and photographs of different sizes, one of them broken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "home"))
    (tmp_path / "zoo.py").write_text(CODE)
    namespace: dict[str, nn.Module] = {}
    exec(CODE, namespace)
    example = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    rule = Preprocessing((12, 12), 14, 3)
    adapt(namespace["make"](), example, names=NAMES, preprocessing=rule, factory="zoo:make").save(tmp_path / "model")
    rng = np.random.default_rng(0)
    for number, name in enumerate(NAMES):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for row in range(20):
            size = (int(rng.integers(10, 30)), int(rng.integers(10, 30)), 3)
            pixels = rng.integers(0, 120, size) + 120 * (1 - number)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{row:02}.png")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(words)
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_calibrate_runs_image_files_through_the_models_own_rule(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "photos" / "dark" / "07.png").write_bytes(b"no image")
    words = (
        "calibrate",
        "model",
        "--model",
        "zoo:make",
        "--data",
        "photos",
        "--split",
        "all",
        "--method",
        "temperature",
    )
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert "temperature fitted to 39 samples of photos (all)" in out
    assert "Left out: photos/dark/07.png: it is not in an image format we read" in out.replace("\n", "")
    classifier = Classifier.load("model", model="zoo:make")
    paths = [
        path for path in sorted((folder / "photos").rglob("*.png")) if path.name != "07.png" or "bright" in str(path)
    ]
    images = [torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1) for path in paths]
    outputs, _ = predict(classifier, torch.stack([classifier.prepare(image) for image in images]))
    labels = torch.tensor([0] * 20 + [1] * 19)
    fitted = load(folder / "model" / "calibrators" / "temperature", model=classifier.fingerprint())
    torch.testing.assert_close(fitted(outputs), Temperature.fit(outputs, labels)(outputs))


def test_files_are_predicted_in_batches_with_their_rows(folder: Path) -> None:
    classifier = load_model(folder / "model", "zoo:make", "cpu")
    paths = sorted((folder / "photos" / "dark").iterdir())
    paths[3].write_bytes(b"")
    outputs, rows, problems = predict_files(classifier, paths, batch=6)
    assert rows.tolist() == [row for row in range(20) if row != 3]
    assert list(problems) == [paths[3]]
    single, _, _ = predict_files(classifier, paths[5:6])
    torch.testing.assert_close(outputs.logits[4:5], single.logits)


def test_benchmark_measures_an_own_model_that_has_learned_every_class(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["benchmark", "--data", "photos", "--size", "12", "--runs", "mine=model", "--hold-out", "none"]
    words += ["--scores", "u,msp", "--calibrators", "temperature", "--corruptions", "motion_blur", "--jobs", "1"]
    code, _, err = run(capsys, *words)
    assert code == 1
    assert "--model to be given but got nothing for" in err
    assert "made by zoo:make; pass the function that makes its code" in err
    code, _, err = run(capsys, *words, "--model", "zoo:make")
    assert (code, err) == (0, "")
    rows = Results.read(folder / "benchmark-results").rows
    assert {row.backbone for row in rows if row.model == "mine"} == {"zoo:make"}
    assert {row.kind for row in rows if row.metric == "auroc"} == {"covariate"}  # no class is unseen
    (folder / "flat").mkdir()
    for path in (folder / "photos" / "dark").iterdir():
        os.link(path, folder / "flat" / path.name)
    words += ["--model", "zoo:make", "--far", "flat", "--out", "other"]  # images without classes are a far set
    assert run(capsys, *words)[0] == 0
    assert {row.n for row in Results.read(folder / "other").where(shift="flat", model="mine").rows} == {20}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("calibrate model --data photos", "Expected --model to be given but got nothing for model"),
        ("calibrate model --model zoo:absent --data photos", "Expected --model to be module:Name but got zoo:absent"),
        ("calibrate model --model zoo --data photos", "no module and name with a colon between them"),
        ("calibrate model --model zoo:broken --data photos", "which raised RuntimeError: no weights here"),
        ("calibrate model --model os:getcwd --data photos", "one that returns a str"),
        ("calibrate model.pt2 --data photos", "cannot be opened without running code of the file"),
        ("calibrate model --model zoo:make --data flat", "of the 2 classes of the model but got flat with 1"),
        ("train --data flat --backbone digits --preset smoke --out x", "of two classes or more"),
        ("benchmark --data photos --size 12", "--hold-out none where a model learns all of them"),
    ],
)
def test_every_error_is_a_line(folder: Path, words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "flat").mkdir()
    for number in range(10):
        Image.new("RGB", (12, 12)).save(folder / "flat" / f"{number}.png")
    (folder / "model.pt2").touch()
    code, _, err = run(capsys, *words.split())
    assert code == 1
    assert line in err
    assert err.count("\n") == 1
