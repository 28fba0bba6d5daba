"""`shiftprism scores`: the table a person reads."""

import pytest
from typer.testing import CliRunner

from shiftprism.cli import app
from shiftprism.scores import SCORES


def told(monkeypatch: pytest.MonkeyPatch, columns: int) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = CliRunner().invoke(app, ["scores"])
    assert done.exit_code == 0, done.output
    return done.output


def test_every_score_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [" ".join(line.split()) for line in told(monkeypatch, 200).splitlines()]
    for name, entry in SCORES.items():
        fit = "no" if not entry.fitted else "with" if entry.needs else "yes"
        about = f"{name} {entry.formula} {', '.join(entry.reads)} {fit}"
        assert [line for line in lines if line.startswith(about) and line.endswith(entry.paper)], about
    assert [line for line in lines if line.startswith("prism ") and "with reference" in line]
    assert [line for line in lines if line.startswith("fdbd ") and "features, logits, head with head" in line]


def test_a_narrow_terminal_loses_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(name in told(monkeypatch, 80) for name in ("g_two_sided", "mahalanobis", "prism"))
