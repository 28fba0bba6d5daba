"""tools/compare_results.py: two results folders are equal in every number, rank and judgement, or it says where not."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rows_examples import made_results
from shiftprism import report

PROGRAM = Path(__file__).parents[1] / "tools/compare_results.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("before")
    made_results(2).where(model=("vanilla", "alpha-beta")).write_brief(path)
    report.publish(path, page=False)
    return path


def compare(before: Path, after: Path, *options: str) -> tuple[int, str]:
    """The exit code, and what is printed."""
    command = [sys.executable, str(PROGRAM), str(before), str(after), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def change(folder: Path, tmp_path: Path, name: str, pattern: str, other: str) -> Path:
    """A copy of the folder with one place of one file changed."""
    after = tmp_path / "after"
    shutil.copytree(folder, after)
    text = (after / name).read_text(encoding="utf-8")
    changed, count = re.subn(pattern, other, text, count=1)
    assert count == 1
    assert changed != text
    (after / name).write_text(changed, encoding="utf-8")
    return after


def test_equal_folders_have_no_differences(folder: Path) -> None:
    code, text = compare(folder, folder)
    tables = len(list((folder / "tables").glob("*.csv")))
    assert code == 0
    assert re.fullmatch(rf"{tables} tables, \d{{3,}} cells, \d+ claims: 0 differences\n", text)


@pytest.mark.parametrize(
    ("name", "pattern", "other"),
    [
        ("tables/cifar10-detection.csv", r",0\.9(\d+),", r",0.8\1,"),  # a mean
        ("tables/cifar10-detection.csv", r",(\d)\.(\d+)e?[-\d]*,2,1000,1,", r",\1.\2,2,1000,0,"),  # bold
        ("tables/cifar10-calibration.csv", r",2,1000,", ",3,1000,"),  # seeds
        ("tables/cifar10-ranking.csv", r",worse\n", ",better\n"),  # a text that is no number
        ("tables/cifar10-ranking.csv", r"\n1,", "\n2,"),  # a rank
        ("claims.json", '"judgement": "holds"', '"judgement": "not shown"'),
        ("claims.json", r'"low": (-?)0\.', r'"low": \g<1>1.'),
    ],
)
def test_one_change_is_found_and_named(folder: Path, tmp_path: Path, name: str, pattern: str, other: str) -> None:
    after = change(folder, tmp_path, name, pattern, other)
    for pair in ((folder, after), (after, folder)):
        code, text = compare(*pair)
        assert code == 1
        assert text.startswith(f"{Path(name).name}: ")
        assert text.endswith(": 1 differences\n")


def test_words_may_differ(folder: Path, tmp_path: Path) -> None:
    after = change(folder, tmp_path, "claims.json", '"note": "', '"note": "in other words, ')
    assert compare(folder, after)[0] == 0


def test_a_table_that_is_missing_or_shorter_is_a_difference(folder: Path, tmp_path: Path) -> None:
    after = change(folder, tmp_path, "tables/cifar10-tnr.csv", r"\n[^\n]*\n$", "\n")
    (after / "tables/cifar10-scores.csv").unlink()
    code, text = compare(folder, after)
    assert code == 1
    assert "cifar10-scores.csv: in one folder only" in text
    assert re.search(r"cifar10-tnr\.csv: \d+ entries before, \d+ after", text)


def test_verdicts_are_matched_though_rows_left(folder: Path, tmp_path: Path) -> None:
    after = change(folder, tmp_path, "tables/cifar10-ranking.csv", r",worse\n", ",better\n")
    table = after / "tables/cifar10-ranking.csv"
    head, *lines = table.read_text(encoding="utf-8").splitlines()
    (first,) = {tuple(line.split(",")[1:3]) for line in lines if line.startswith("1,")}
    table.write_text("\n".join([head, *(line for line in lines if not line.startswith("1,"))]) + "\n", encoding="utf-8")
    claims = json.loads((after / "claims.json").read_text(encoding="utf-8"))
    held = next(one for one in claims if one["judgement"] == "holds")
    held["judgement"], held["note"] = "not shown", "a reason"
    (after / "claims.json").write_text(json.dumps(claims), encoding="utf-8")
    code, text = compare(folder, after, "--verdicts")
    assert code == 0
    assert f"cifar10, {held['claim']}: holds -> not shown (a reason)\n" in text
    assert text.count("holds ->") == 1
    count = len({tuple(line.split(",")[1:3]) for line in lines})
    assert f"cifar10-ranking: {count} pairs before, 1 left, 0 new; order held\n" in text
    assert "    worse -> better: 1\n" in text
    assert first not in {tuple(line.split(",")[1:3]) for line in table.read_text(encoding="utf-8").splitlines()}


def test_claims_of_an_older_version_are_read(folder: Path, tmp_path: Path) -> None:
    """There a verdict had three values, and the note began with the reason of "does not hold"."""
    older, newer = tmp_path / "older", tmp_path / "newer"
    shutil.copytree(folder, older)
    shutil.copytree(folder, newer)
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    claims[0]["judgement"], claims[1]["judgement"] = "contradicted", "not shown"
    (newer / "claims.json").write_text(json.dumps(claims), encoding="utf-8")
    for one in claims:
        judgement = one.pop("judgement")
        one["verdict"] = "does not hold" if judgement in ("contradicted", "not shown") else judgement
        one["note"] = f"{judgement}: {one['note']}"
    assert {one["verdict"] for one in claims} == {"holds", "does not hold", "not measured"}
    (older / "claims.json").write_text(json.dumps(claims), encoding="utf-8")
    assert compare(older, newer)[0] == 0
    assert "2 differences" in compare(older, folder)[1]
