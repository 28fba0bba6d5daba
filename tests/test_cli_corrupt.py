"""`shiftprism corrupt`: what it writes is read back as what the corruptions make, and an interrupted run is resumed."""

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from shiftprism.cli import app
from shiftprism.corruptions import COMMON, CORRUPTIONS, EXTRA, Corruption, corrupt
from shiftprism.corruptions._random import Draws
from shiftprism.datasets import load
from shiftprism.shifts import suite


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["corrupt", *map(str, words)])


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two classes, in a home of its own for decoded images."""
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "home"))
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_a_folder_becomes_the_official_layout(photos: Path, tmp_path: Path) -> None:
    to = tmp_path / "photos-c"
    done = run(photos, "--split", "all", "--size", "16", "--to", to, "--extra")
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == [str(to / f"{name}.npy") for name in (*COMMON, *EXTRA)]
    clean = load(str(photos), "all", size=16)
    assert np.array_equal(np.load(to / "labels.npy"), np.tile(clean.labels.numpy(), 5))
    for name in (*COMMON, *EXTRA):
        stored = np.load(to / f"{name}.npy")
        assert (stored.shape, stored.dtype) == ((30, 16, 16, 3), np.uint8)
        made = [CORRUPTIONS[name](clean.images, severity, torch.arange(6)) for severity in range(1, 6)]
        assert np.array_equal(stored, torch.cat(made).permute(0, 2, 3, 1).numpy())
    assert load(f"{to}/fog/2", "test").names == ("cat", "dog")
    shifts = list(suite("covariate", clean, corrupted=str(to)))
    assert len(shifts) == 75
    assert torch.equal(shifts[7].make().images, CORRUPTIONS["shot_noise"](clean.images, 3, torch.arange(6)))


def test_an_interrupted_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "digits-c"
    words = ("digits", "--to", to, "--only", "contrast", "--only", "fog")
    fog = CORRUPTIONS["fog"]

    def cut(images: torch.Tensor, severity: int, draws: Draws) -> torch.Tensor:
        if severity == 3:
            raise OSError("the power is out")
        return fog.effect(images, severity, draws)

    with monkeypatch.context() as patch:
        patch.setitem(CORRUPTIONS, "fog", Corruption("fog", fog.stream, cut))
        assert "the power is out" in str(run(*words).exception)
    assert sorted(file.name for file in to.iterdir()) == ["contrast.npy", "labels.npy", "shiftprism.json"]
    kept = (to / "contrast.npy").stat().st_mtime_ns
    assert run(*words).exit_code == 0
    assert (to / "contrast.npy").stat().st_mtime_ns == kept
    data = load("digits", "test")
    whole = [fog(data.images, severity, torch.arange(596)) for severity in range(1, 6)]
    assert np.array_equal(np.load(to / "fog.npy"), torch.cat(whole).permute(0, 2, 3, 1).numpy())


def test_another_data_set_does_not_go_into_the_same_folder(tmp_path: Path) -> None:
    words = ("digits", "--to", tmp_path / "digits-c", "--only", "contrast")
    assert run(*words).exit_code == 0
    other = run(*words, "--split", "train")
    assert other.exit_code == 1
    assert "made from the same data" in str(other.exception)
    assert len(np.load(tmp_path / "digits-c" / "labels.npy")) == 5 * 596


def test_a_disk_without_room_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6 - 1000, 1000))
    done = run("digits", "--to", tmp_path / "deep" / "digits-c", "--only", "contrast")
    assert done.exit_code == 1
    assert "needs 0.0 GB and the disk has" in str(done.exception)
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [(("digits", "--only", "rust"), "but got 'rust'"), (("nowhere",), "there is nothing at")],
)
def test_wrong_words_are_answered(words: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    done = run(*words, "--to", tmp_path / "c")
    assert done.exit_code == 1
    assert problem in str(done.exception)
    assert not (tmp_path / "c").exists()


def test_the_parameters_are_chosen_and_said(photos: Path, tmp_path: Path) -> None:
    words = (photos, "--split", "all", "--size", "16", "--only", "gamma", "--only", "gaussian_noise")
    auto, strong = (run(*words, "--to", tmp_path / name, "--parameters", name) for name in ("auto", "imagenet"))
    assert "Made with CIFAR-C's parameters, lengths times 0.5." in auto.output
    assert "Made with ImageNet-C's parameters, lengths times 0.0714." in strong.output
    clean = load(str(photos), "all", size=16).images
    stored = np.load(tmp_path / "imagenet" / "gaussian_noise.npy")[:6]
    made = corrupt(clean, "gaussian_noise", 1, parameters="imagenet")
    assert np.array_equal(stored, made.permute(0, 2, 3, 1).numpy())
    wrong = run(*words, "--to", tmp_path / "x", "--parameters", "big")
    assert "Expected `parameters` to be one of auto, cifar, imagenet" in str(wrong.exception)
    assert not (tmp_path / "x").exists()
