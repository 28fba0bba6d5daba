"""results/growth.md: its tables are those of its rows, and the rows show what docs/scale.md says of them."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def growth() -> ModuleType:
    return load_script(ROOT / "speed" / "growth.py")


@pytest.fixture(scope="module")
def rows(growth: ModuleType) -> list[dict[str, Any]]:
    return list(growth.read_rows(ROOT / "results" / "growth.jsonl"))


def test_the_tables_are_those_of_the_rows(growth: ModuleType, rows: list[dict[str, Any]]) -> None:
    assert growth.make_tables(rows) in (ROOT / "results" / "growth.md").read_text(encoding="utf-8")


def test_every_score_scores_a_million_outputs_within_24_gb(growth: ModuleType, rows: list[dict[str, Any]]) -> None:
    whole = {row["score"] for row in rows if row["n"] == row.get("scored") == 1_000_000 and row["k"] == 10}
    assert whole == set(growth.NAMES)
    assert not [row for row in rows if "stopped" in row]
    assert max(row["whole_mb"] for row in rows) < 24_000


def test_no_memory_grows_as_the_rows_do(growth: ModuleType, rows: list[dict[str, Any]]) -> None:
    """The largest exponent is that of gmm, which keeps up to D rows of each class."""
    for name in growth.NAMES:
        power = growth.memory_exponent([row for row in rows if row["score"] == name])
        assert not power > 0.6, name
