"""The layout of a results folder: what is written is found again, and what is damaged is named."""

from pathlib import Path

import numpy as np
import pytest

from rows_examples import row
from shiftprism.rows import CellFolder, Results, ResultsFolder


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path)


def results_of(*seeds: int) -> Results:
    return Results.without_resamples([row(seed=seed, error=0.01) for seed in seeds])


def test_a_file_of_rows_stands_for_its_folder(tmp_path: Path) -> None:
    results_of(0).write(tmp_path)
    assert ResultsFolder.of(tmp_path) == ResultsFolder.of(str(tmp_path / "rows.jsonl")) == ResultsFolder(tmp_path)
    assert ResultsFolder.of(tmp_path / "new") == ResultsFolder(tmp_path / "new")


def test_the_plan_and_the_commands_are_kept(folder: ResultsFolder) -> None:
    assert (folder.read_suite(), folder.commands()) == ({}, [])
    for command in ("one", "two", "two", "one", "three"):
        folder.write_suite({"suite": "digits", "images": 0}, command)
    assert folder.read_suite()["plan"] == {"suite": "digits", "images": 0}
    assert folder.commands() == ["two", "one", "three"]  # each once, where it was last
    folder.suite.write_text('{"plan": {}')
    with pytest.raises(ValueError, match=r"Expected `path` to be a file of this benchmark but got .*suite\.json"):
        folder.commands()


def test_a_cell_remembers_what_does_not_fit_it_and_its_seconds(folder: ResultsFolder) -> None:
    cell = folder.cell("digits-duq-0")
    assert cell.read_about() == {"left_out": {}, "seconds": {}}
    cell.write_about({"vim": "no head"}, {"fit": 0.5})
    assert cell.read_about() == {"left_out": {"vim": "no head"}, "seconds": {"fit": 0.5}}
    (cell.path / "cell.json").write_text("[]")
    with pytest.raises(ValueError, match=r"cell\.json with a list in place of an object"):
        cell.read_about()


def test_files_of_a_cell(folder: ResultsFolder) -> None:
    cell = folder.cell("digits-duq-0")
    assert cell.outputs("unseen digits", 0) == cell.path / "outputs" / "unseen-digits-0.safetensors"
    assert cell.outputs("train") == cell.path / "outputs" / "train.safetensors"
    assert cell.calibrators() == []
    for name in ("temperature", "alpha-beta"):
        cell.calibrator(name).mkdir(parents=True)
    assert cell.calibrators() == [cell.calibrator("alpha-beta"), cell.calibrator("temperature")]
    assert cell.find_fault() == "absent"
    results_of(0).write(cell.path)
    assert cell.rows.is_file()
    assert cell.find_fault() == ""


def test_pixel_counts_of_all_cells_are_joined(folder: ResultsFolder) -> None:
    with pytest.raises(FileNotFoundError, match="no pixels were counted"):
        folder.read_pixels("mine")
    for data, count in (("mine", 3), ("other", 5)):
        cell = folder.cell(f"{data}-pixels-0")
        cell.path.mkdir(parents=True)
        cell.pixels.write_text(f'{{"{data}": [[{count}]], "far": [[{10 * count}]]}}')
    folder.cell("mine-vanilla-0").path.mkdir()
    folder.write_pixels()
    assert folder.read_pixels("mine") == {"mine": [[3]], "far": [[30]]}
    assert folder.read_pixels("other") == {"other": [[5]], "far": [[50]]}


def test_the_rows_of_all_whole_cells_are_collected_in_order(folder: ResultsFolder) -> None:
    parts = {"c": results_of(3), "a": results_of(1, 2), "b": results_of(9)}
    for key, part in parts.items():
        part.write(folder.cell(key).path)
    folder.cell("empty").path.mkdir()
    (folder.path / "cells" / "notes.txt").write_text("no cell")
    (folder.cell("b").path / "resamples.safetensors").unlink()  # so its rows are not whole
    assert folder.cells() == [CellFolder(folder.path / "cells" / key) for key in ("a", "b", "c", "empty")]
    collected = folder.collect()
    assert [one.seed for one in collected.rows] == [1, 2, 3]
    assert np.array_equal(collected.resamples, np.concatenate([parts["a"].resamples, parts["c"].resamples]))


def test_results_in_memory_are_not_read_again(folder: ResultsFolder) -> None:
    for key in ("a", "b"):
        results_of(0).write(folder.cell(key).path)
    folder.cell("b").rows.write_text("no row")
    collected = folder.collect({"b": results_of(5)})
    assert [one.seed for one in collected.rows] == [0, 5]


def test_an_empty_folder_has_no_results(folder: ResultsFolder) -> None:
    assert folder.cells() == []
    assert folder.collect().rows == []
