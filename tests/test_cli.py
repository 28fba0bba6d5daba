"""The command line as a person meets it."""

import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from shiftprism import Detector, __version__
from shiftprism.cli import app, main
from shiftprism.datasets import load
from shiftprism.rows import Results, ResultsFolder


@pytest.mark.slow
def test_demo_decides_about_digits_then_shows_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A detector of digits, the results that the package carries, and a study on digits: three pages."""
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["demo", "--to", str(out), "--seeds", "1"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert len(lines) <= 30, done.output
    assert not [line for line in lines if len(line) > 80 and str(tmp_path) not in line]
    assert "<b>" not in done.output
    assert "bold" not in done.output.lower()  # this output is no terminal
    # the counts on the terminal are those of the detector that was saved
    detector = Detector.load(out / "verdicts/detector")
    clean = load("digits", "test").only([str(number) for number in range(8)]).images
    flagged = float((detector(clean).kind != "in-distribution").mean())
    assert f"{100 * flagged:.1f} %" in next(line for line in lines if line.startswith("clean"))
    order = [next(at for at, line in enumerate(lines) if word in line) for word in ("never seen", "CIFAR-10", "pages")]
    assert order == sorted(order)
    with Image.open(out / "verdicts/verdicts.png") as picture:
        assert picture.width > 600
    page = (out / "verdicts/index.html").read_text(encoding="utf-8")
    for question in ("Caught and missed", "Counts", "In words"):
        assert question in page
    assert len(re.findall("<li>An? ", page)) == 32
    for name in ("cifar10", "digits"):
        folder = ResultsFolder(out / name)
        assert str(folder.page) in done.output
        for question in ("What holds?", "Does it detect?", "Can I trust the confidence?"):
            assert question in folder.page.read_text(encoding="utf-8")
        assert folder.claims.exists()
        results = Results.read(folder.path)
        assert {row.data for row in results.rows} == {name}
        assert {row.model for row in results.rows} - {"pixels"} == {"vanilla", "alpha-beta"}
        assert results.rows == folder.collect().rows
        assert {path.stem for path in (folder.path / "figures").iterdir()} >= {f"{name}-roc", f"{name}-reliability"}


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
