"""`shiftprism data`: what it prints, and how it exits."""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dataset_files import Made, cifar10_binary, cifar10_binary_archive, corrupted_folder, idx, svhn, tiny_small
from shiftprism.cli.data import app
from shiftprism.datasets import DATASETS, _cifar, _tiny_imagenet
from shiftprism.datasets._download import Progress


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_cifar, "ROWS", {"train": 20, "test": 4})
    monkeypatch.setattr(_tiny_imagenet, "CLASSES", 3)
    monkeypatch.setattr(_tiny_imagenet, "EACH", {"train": 2, "test": 2})
    monkeypatch.setenv("SHIFTPRISM_DATA", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_list_tells_sizes_licences_and_where_it_looked_and_found(tmp_path: Path) -> None:
    cifar10_binary(tmp_path / "home", "test")
    told = run("list").stdout
    assert all(f"{name}: {entry.about}" in told and entry.licence in told for name, entry in DATASETS.items())
    assert "download: 170 MB" in told
    assert f"test: {tmp_path / 'home' / 'cifar-10-batches-bin'}" in told
    assert "train: not found" in told
    assert f"Looked in {tmp_path / 'home'}, {tmp_path / 'share' / 'datasets'}" in told
    assert str(tmp_path / "elsewhere") in run("list", "--root", str(tmp_path / "elsewhere")).stdout


def test_get_prints_the_files_it_brought(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fake(name: str, root: Path | None, progress: Progress) -> list[Path]:
        progress("file.bin", 5, 10)
        progress("file.bin", 10, 10)
        return [tmp_path / f"{name}-{root}"]

    monkeypatch.setattr("shiftprism.datasets.get", fake)
    result = run("get", "cifar10", "--root", "here")
    assert result.exit_code == 0
    assert result.stdout.strip() == str(tmp_path / "cifar10-here")


def test_get_of_what_needs_no_download_says_so() -> None:
    assert "digits needs no download" in run("get", "digits").stdout


def test_get_of_an_unknown_name_is_an_error_without_a_traceback() -> None:
    result = run("get", "cifar11")
    assert result.exit_code == 1
    assert "one of" in str(result.exception)
    assert "Traceback" not in result.output


def test_get_without_a_network_tells_what_to_put_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> list[Path]:
        raise ConnectionError("put it at [here]")

    monkeypatch.setattr("shiftprism.datasets.get", unreachable)
    result = run("get", "cifar100")
    assert result.exit_code == 1
    assert str(result.exception) == "put it at [here]"


def test_check_reads_what_there_is_and_passes_by_what_is_not(tmp_path: Path) -> None:
    made = cifar10_binary_archive(tmp_path / "home", "test")
    corrupted_folder(tmp_path / "home", "test")
    result = run("check")
    assert result.exit_code == 0
    assert f"cifar10 test: complete, 4 × 3 × 32 × 32, {made.file}, not byte for byte as published" in result.stdout
    assert "cifar10-c test: complete, 4 × 3 × 32 × 32" in result.stdout
    assert "svhn test: not found" in result.stdout


def test_check_calls_a_part_of_the_published_digits_a_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svhn(tmp_path / "home", "test", False)
    said = "svhn test: a subset: 5 of the 26,032 published test images, 5 × 3 × 32 × 32"
    assert said in run("check", "svhn").stdout
    monkeypatch.setitem(DATASETS, "svhn", DATASETS["svhn"]._replace(published={"test": 5}))
    assert "svhn test: complete, 5 × 3 × 32 × 32" in run("check", "svhn").stdout


def test_check_of_a_name_that_is_not_there_fails_and_says_what_to_put_where(tmp_path: Path) -> None:
    result = run("check", "svhn")
    assert result.exit_code == 1
    assert f"test_32x32.mat as {tmp_path / 'home' / 'svhn' / 'test_32x32.mat'}" in result.stderr
    assert run("check", "cifar11").exit_code == 1


@pytest.mark.parametrize("make", [cifar10_binary, tiny_small, lambda root, split: idx(root, split, "mnist", ".gz")])
def test_check_finds_a_damaged_file_even_after_it_was_decoded(
    make: Callable[[Path, str], Made], tmp_path: Path
) -> None:
    made = make(tmp_path / "home", "test")
    assert run("check").exit_code == 0
    content = made.file.read_bytes()
    made.file.write_bytes(content[: len(content) // 2])
    result = run("check")
    assert result.exit_code == 1
    assert f"{made.file.name} is damaged at byte" in result.stderr


def test_check_compares_the_published_digest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = cifar10_binary_archive(tmp_path / "home", "test")
    (download,) = DATASETS["cifar10"].downloads
    right = download._replace(digest=f"sha256:{hashlib.sha256(made.file.read_bytes()).hexdigest()}")
    monkeypatch.setitem(DATASETS, "cifar10", DATASETS["cifar10"]._replace(downloads=(right,)))
    assert f"{made.file}, byte for byte as published" in run("check", "cifar10").stdout


def test_help_does_not_import_torch() -> None:
    code = "import sys; from shiftprism.cli.data import app; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
