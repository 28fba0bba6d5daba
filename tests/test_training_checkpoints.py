"""Checkpoints: models of earlier epochs, equal to what a run had then, in spite of a kill, and their preset."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from shiftprism.benchmark import Plan
from shiftprism.benchmark._grid import list_cells
from shiftprism.classifier import Classifier
from shiftprism.training import PRESETS, Progress, Setup, Training, read_settings, run

SHORT = replace(PRESETS["smoke"], epochs=4, keep=2, seed=3)
DIGITS = Setup("digits", "digits", "alpha-beta", SHORT)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four epochs that keeps every second."""
    folder = tmp_path_factory.mktemp("kept") / "ab"
    run(folder, DIGITS)
    return folder


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


def stop_at(step: int) -> Any:
    def progress(now: Progress) -> None:
        if now.step == step:
            raise KeyboardInterrupt

    return progress


def test_every_second_epoch_is_kept_and_the_last_is_the_model(finished_run: Path) -> None:
    assert sorted(path.name for path in (finished_run / "checkpoints").iterdir()) == ["2", "4"]
    assert weights(finished_run / "checkpoints" / "4") == weights(finished_run)
    assert weights(finished_run / "checkpoints" / "2") != weights(finished_run)


def test_a_checkpoint_is_the_network_that_the_run_had_then(finished_run: Path, tmp_path: Path) -> None:
    """The state that a run stopped in its third epoch leaves is that of the second."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, DIGITS, progress=stop_at(2 * 17 + 5))
    state = load_file(tmp_path / "state.safetensors")
    loaded = Classifier.load(finished_run / "checkpoints" / "2").state_dict()
    assert all(torch.equal(tensor, state[f"network.{name}"]) for name, tensor in loaded.items())
    assert read_settings(finished_run / "checkpoints" / "2" / "config.toml")["seed"] == 3


def test_a_run_stopped_between_checkpoint_and_state_ends_with_the_same_bits(finished_run: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, DIGITS, progress=stop_at(17 + 5))  # the second epoch was not finished
    (tmp_path / "checkpoints" / "2").mkdir(parents=True)
    (tmp_path / "checkpoints" / "2" / "weights.safetensors").write_bytes(b"cut")
    run(tmp_path, DIGITS, resume=True)
    for epoch in ("2", "4"):
        assert weights(tmp_path / "checkpoints" / epoch) == weights(finished_run / "checkpoints" / epoch)
    assert weights(tmp_path) == weights(finished_run)


def test_nothing_is_kept_by_default_and_keeping_changes_no_bit(finished_run: Path, tmp_path: Path) -> None:
    run(tmp_path, DIGITS._replace(training=replace(SHORT, keep=0)))
    assert not (tmp_path / "checkpoints").exists()
    assert weights(tmp_path) == weights(finished_run)


def test_a_run_from_before_checkpoints_is_still_loaded(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "old")
    config = tmp_path / "old" / "config.toml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if not line.startswith("keep")))
    assert len(run(tmp_path / "old", DIGITS._replace(training=replace(SHORT, keep=0)), resume=True).history) == 4
    with pytest.raises(ValueError, match="keep 2 for 0"):
        run(tmp_path / "old", DIGITS, resume=True)


def test_a_benchmark_takes_all_checkpoints_of_a_run(finished_run: Path, tmp_path: Path) -> None:
    plan = Plan(suite="digits", runs=(f"alpha-beta={finished_run}/checkpoints",)).resolve()
    assert plan.runs == tuple(f"alpha-beta@{epoch}={finished_run}/checkpoints/{epoch}" for epoch in (2, 4))
    assert plan.resolve() == plan
    cells = [(cell.model, cell.seed) for cell in list_cells(plan, tmp_path) if cell.run]
    assert cells == [("alpha-beta@2", 3), ("alpha-beta@4", 3)]
    unnamed = Plan(suite="digits", runs=(f"{finished_run}/checkpoints",)).resolve()
    assert unnamed.runs[0].startswith("ab@2=")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ValueError, match=r"Expected `runs` to be folders of trained models but got .* without any"):
        Plan(suite="digits", runs=(f"x={tmp_path}/checkpoints",)).resolve()


def test_the_long_preset_is_five_times_the_short_one() -> None:
    long, short = PRESETS["laptop-long"], PRESETS["laptop"]
    assert long.epochs == 5 * short.epochs == 60
    assert long.warmup * long.epochs == pytest.approx(short.warmup * short.epochs)  # as many warm-up steps
    assert replace(long, epochs=short.epochs, warmup=short.warmup, keep=0) == short
    assert Training().keep == short.keep == PRESETS["paper"].keep == 0
    with pytest.raises(ValueError, match="Expected `keep` to be a finite number of at least 0 but got -1"):
        Training(keep=-1)
