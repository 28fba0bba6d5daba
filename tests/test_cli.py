"""The command line as a person meets it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shiftprism import __version__
from shiftprism.cli import app, main
from shiftprism.rows import Results, ResultsFolder


def test_demo_writes_two_pages_and_says_where(tmp_path: Path) -> None:
    """The results that the package carries, and the same study on digits: two folders of the same layout."""
    done = CliRunner().invoke(app, ["demo", "--to", str(tmp_path / "out"), "--seeds", "1"])
    assert done.exit_code == 0, done.output
    for name in ("cifar10", "digits"):
        folder = ResultsFolder(tmp_path / "out" / name)
        assert str(folder.page) in done.output
        for question in ("What holds?", "Does it detect?", "Can I trust the confidence?"):
            assert question in folder.page.read_text(encoding="utf-8")
        assert folder.claims.exists()
        results = Results.read(folder.path)
        assert {row.data for row in results.rows} == {name}
        assert {row.model for row in results.rows} - {"pixels"} == {"vanilla", "alpha-beta"}
        assert results.rows == folder.collect().rows
        assert {path.stem for path in (folder.path / "figures").iterdir()} >= {f"{name}-roc", f"{name}-reliability"}
        assert f"{name}: AUROC, near and far" in done.output
        assert f"{name}: calibration" in done.output
    assert "Classifiers of the handwritten digits 0 to 6 meet digits they never saw (concept shift" in " ".join(
        done.output.split()
    )
    assert "<b>" not in done.output
    assert "bold" not in done.output.lower()  # this output is no terminal
    assert "With *: the best" in done.output


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
