"""The short form of tools/fuzz.py: damaged files of every kind end in one line, in time, and with an exit code."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", Path(__file__).parents[1] / "tools/fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_damaged_files_end_in_one_line(fuzz: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    before = os.getcwd()
    tally = fuzz.run_cases(tmp_path / "files", cases=60, seconds=90, seed=7)
    assert not tally.lines, tally.lines
    assert not tally.faults
    assert len({name.split(":")[0] for name in tally.counts}) == 54  # every kind of file had its turn
    assert os.getcwd() == before


def test_what_counts_as_a_fault(fuzz: ModuleType) -> None:
    assert fuzz.judge(1, "shiftprism: a.npz is damaged\n").fault == ""
    assert fuzz.judge(0, "").fault == ""
    assert fuzz.judge(1, "shiftprism: unexpected KeyError: 'x'. Please report it\n").fault == "traceback"
    assert fuzz.judge(0, "shiftprism: a.npz is damaged\n").fault == "wrong exit code"
    assert fuzz.judge(139, "").fault == "wrong exit code"
    assert fuzz.judge(1, "").fault == "not one line"
