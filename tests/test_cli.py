"""The command line as a person meets it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shiftprism import __version__, benchmark
from shiftprism.cli import app, main


def test_demo_writes_the_page_and_says_where(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--to", str(tmp_path / "out"), "--seeds", "1"])
    assert done.exit_code == 0, done.output
    page = tmp_path / "out" / "report.html"
    assert page.exists()
    assert str(page) in done.output
    assert "Does it detect?" in done.output
    assert "Can the confidence be trusted?" in done.output
    assert {row.model for row in benchmark.read_rows(tmp_path / "out" / "rows.jsonl")} == {"vanilla", "alpha-beta"}


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"shiftprism {__version__}\n"


def test_wrong_words_get_an_answer() -> None:
    done = CliRunner().invoke(app, ["dmeo"])
    assert done.exit_code == 2
    assert "No such command" in done.output
    assert "demo" in done.output
    done = CliRunner().invoke(app, ["demo", "--seeds", "0"])
    assert done.exit_code == 2
    assert "greater than or equal to 1" in done.output or "0 is not in the range" in done.output


def test_an_error_is_one_line_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("sys.argv", ["shiftprism", "demo", "--to", str(tmp_path / "file"), "--seeds", "1"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert capsys.readouterr().err.startswith("shiftprism: ")
