"""results/shift: its tables are those of its rows."""

from pathlib import Path

import pytest

from shift_study import FOUR, Numbers, percent
from shiftprism.rows import Results

FOLDER = Path(__file__).parents[1] / "results" / "shift"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.read(FOLDER)


@pytest.mark.parametrize("score", ["u", "style", "spectrum"])
def test_a_line_of_the_table_is_that_of_the_rows(results: Results, score: str) -> None:
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    head = next(line for line in lines if line.startswith("| AUROC: CIFAR-100"))
    cells = next(line for line in lines if line.startswith(f"| `{score}` |")).strip("| ").split(" | ")[1:]
    names = head.strip("| ").split(" | ")[1:]
    assert len(names) >= 4
    for name, cell in zip(names, cells, strict=True):
        model, _, seed = name.rpartition("-")
        own = Numbers(results.where(model=model, seed=int(seed)))
        assert cell.startswith(percent(own(shift, score, "auroc") for shift in FOUR))


def test_every_network_reaches_the_goals(results: Results) -> None:
    """The figures that docs/style.md gives as reached, on each network."""
    networks = sorted({(row.model, row.seed) for row in results.rows if row.model in ("vanilla", "alpha-beta")})
    for model, seed in networks:
        own = Numbers(results.where(model=model, seed=seed))
        assert own("corrupted", "style", "auroc") >= 0.88
        assert 0.45 <= own("cifar100", "style", "auroc") <= 0.60
        assert own("corrupted", "style, gen", "which_way") >= 0.90
        assert own("corrupted", "shift-aware", "ece") <= 0.07
        assert own("corrupted", "shift-aware", "predictions_changed") == 0
